/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/check.h"

#include <errno.h>
#include <string.h>

#include "base/overflow.h"
#include "daemon/log.h"

static const struct message {
	const char *name;
	uint16_t type;
	uint32_t length; /* of the request's body */
	bool admin;
} messages[] = {
#define MESSAGE(name, id, request, reply, admin) { #name, id, sizeof(request), admin },
#include "abi/messages.def"
#undef MESSAGE
};

static const struct message *message_find(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++)
		if (messages[i].type == type)
			return &messages[i];
	return NULL;
}

bool wire_is_admin(uint16_t type)
{
	const struct message *m = message_find(type);

	return m && m->admin;
}

bool wire_is_log(uint16_t type)
{
	return type >= WIRE_LOG_OPEN && type <= WIRE_LOG_REMOVE;
}

const char *wire_type_name(uint16_t type)
{
	const struct message *m = message_find(type);

	return m ? m->name : "unknown";
}

static bool terminated(const char *text, size_t n)
{
	return memchr(text, '\0', n) != NULL;
}

static bool name_char_ok(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '.' || c == '@' || c == '-';
}

static bool name_ok(const char *name, size_t length)
{
	if (length == 0 || length >= CTL_DOMAIN_MAX)
		return false;
	/* Names end up in paths below the state directory. */
	if (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!name_char_ok(name[i]))
			return false;
	return true;
}

bool wire_domain_name_ok(const char *name, size_t n)
{
	return terminated(name, n) && name_ok(name, strlen(name));
}

/* "", NAME or USER/NAME. A user's name takes the same characters, and `$` at the end (useradd). */
static bool filter_ok(const char *filter, size_t n)
{
	const char *slash;
	size_t user;

	if (!terminated(filter, n))
		return false;
	if (!*filter)
		return true;
	slash = strchr(filter, '/');
	if (!slash)
		return name_ok(filter, strlen(filter));
	user = (size_t)(slash - filter);
	if (user > 1 && filter[user - 1] == '$')
		user--;
	return name_ok(filter, user) && name_ok(slash + 1, strlen(slash + 1));
}

static void make_printable(char *text, size_t n)
{
	char copy[WIRE_TEXT];

	memcpy(copy, text, n);
	memset(text, 0, n); /* what stood behind the end is nobody's business either */
	log_printable(text, n, copy);
}

static int check_hello(struct wire_hello *m, unsigned fds, const char **why)
{
	/* First: another version may know bits and rules for names that this one does not. */
	if (m->version != CTL_VERSION) {
		if (!wire_domain_name_ok(m->domain, sizeof(m->domain)))
			m->domain[0] = '\0'; /* it goes to the journal */
		return -EPROTONOSUPPORT;
	}
	if (fds != 0)
		*why = "descriptors with HELLO";
	else if (m->want & ~WIRE_WANT_LANE)
		*why = "unknown bits in want";
	else if (!wire_domain_name_ok(m->domain, sizeof(m->domain)))
		*why = "bad name of a domain (1 to 63 of A-Z a-z 0-9 _ . @ -)";
	else if (!terminated(m->program, sizeof(m->program)))
		*why = "program name without an end";
	if (*why)
		return -EPROTO;
	make_printable(m->program, sizeof(m->program));
	return 0;
}

static int check_register(struct wire_register *m, unsigned fds, const char **why)
{
	if (fds != 1)
		*why = "REGISTER takes exactly one descriptor";
	else if (m->flags != 0 || m->reserved != 0)
		*why = "flags or reserved not zero";
	else if (!terminated(m->path, sizeof(m->path)))
		*why = "path without an end";
	if (*why)
		return -EPROTO;
	make_printable(m->path, sizeof(m->path));
	return 0;
}

static int check_domain(const struct wire_domain *m, unsigned fds, const char **why)
{
	if (fds != 0)
		*why = "descriptors with a message that takes none";
	else if (m->flags != 0 || m->reserved != 0)
		*why = "flags or reserved not zero";
	else if (!filter_ok(m->domain, sizeof(m->domain)))
		*why = "bad name of a domain (NAME or USER/NAME)";
	return *why ? -EPROTO : 0;
}

static int check_recover(const struct wire_recover *m, unsigned fds, const char **why)
{
	if (m->mode > WIRE_RECOVER_ADOPT)
		*why = "unknown mode of RECOVER";
	else if (fds != (m->mode == WIRE_RECOVER_ADOPT ? 1u : 0u))
		*why = "RECOVER takes one descriptor with ADOPT, none otherwise";
	else if (m->reserved != 0)
		*why = "reserved not zero";
	else if (!filter_ok(m->domain, sizeof(m->domain)) || !*m->domain)
		*why = "bad name of a domain (NAME or USER/NAME)";
	return *why ? -EPROTO : 0;
}

static int check_features(const struct wire_features *m, unsigned fds, const char **why)
{
	if (fds != 0)
		*why = "descriptors with a message that takes none";
	else if (m->version != 1 || m->want != 0)
		*why = "version or want of FEATURES not known";
	return *why ? -EPROTO : 0;
}

/* A log's name, and that of a domain, empty for one's own. */
static const char *check_names(const char *name, const char *domain, size_t n)
{
	if (!terminated(name, CTL_LOG_NAME_MAX) || !name_ok(name, strlen(name)) || name[0] == '.')
		return "bad name of a log (1 to 63 of A-Z a-z 0-9 _ . @ -, no dot first)";
	if (!filter_ok(domain, n))
		return "bad name of a domain (NAME or USER/NAME)";
	return NULL;
}

/* Bits of `flags` that a message knows. */
static uint32_t log_flags(uint16_t type)
{
	switch (type) {
	case WIRE_LOG_OPEN:
		return WIRE_LOG_CREATE | WIRE_LOG_EXCLUSIVE | WIRE_LOG_READ_ONLY;
	case WIRE_LOG_READ:
		return WIRE_LOG_RECORDS;
	default:
		return 0;
	}
}

static int check_log(const struct wire_log *m, uint16_t type, unsigned fds, const char **why)
{
	bool create = type == WIRE_LOG_OPEN && (m->flags & WIRE_LOG_CREATE);
	bool lsn = type != WIRE_LOG_OPEN && type != WIRE_LOG_STAT && type != WIRE_LOG_REMOVE;
	bool timeout = type == WIRE_LOG_READ || type == WIRE_LOG_SYNC;

	*why = check_names(m->name, m->domain, sizeof(m->domain));
	if (*why)
		return -EPROTO;
	if (fds != 0)
		*why = "descriptors with a message that takes none";
	else if (m->reserved != 0 || (m->flags & ~log_flags(type)) != 0 || (!lsn && m->lsn != 0) ||
		 (!timeout && m->timeout_ms != 0))
		*why = "fields that this message does not use are not zero";
	else if (create ? m->mode != 0600 && m->mode != 0400 : m->mode != 0)
		*why = "mode of a log is neither 0600 nor 0400";
	else if (create && m->value != 0 && (m->value < 65536 || m->value > (uint64_t)INT64_MAX))
		*why = "capacity of a log is below 65536";
	else if (type == WIRE_LOG_READ ? m->value == 0 || m->value > WIRE_LOG_PAYLOAD
				       : !create && m->value != 0)
		*why = "value out of range";
	return *why ? -EPROTO : 0;
}

static int check_append(const struct wire_log_append *m, unsigned fds, const char **why)
{
	*why = check_names(m->name, m->domain, sizeof(m->domain));
	if (*why)
		return -EPROTO;
	if (fds != 0)
		*why = "descriptors with a message that takes none";
	else if (m->flags != 0 || m->length == 0 || m->length > WIRE_LOG_PAYLOAD)
		*why = "flags not zero, or length out of range";
	return *why ? -EPROTO : 0;
}

/* Bytes that follow the body: what it says itself, checked here, since the packet's length depends on it. */
static uint32_t tail_of(const struct message *m, const void *packet, size_t n)
{
	struct wire_log_append a;

	if (m->type != WIRE_LOG_APPEND || n < sizeof(struct wire_header) + sizeof(a))
		return 0;
	memcpy(&a, (const char *)packet + sizeof(struct wire_header), sizeof(a));
	return a.length <= WIRE_LOG_PAYLOAD ? a.length : 0;
}

int wire_check(struct wire_request *ret, const void *packet, size_t n, unsigned fds,
	       const char **why)
{
	const struct message *m;
	uint32_t tail = 0;

	memset(ret, 0, sizeof(*ret));
	*why = NULL;
	if (n < sizeof(ret->header)) {
		*why = "shorter than a header";
		return -EPROTO;
	}
	memcpy(&ret->header, packet, sizeof(ret->header));
	m = message_find(ret->header.type);
	if (m)
		tail = tail_of(m, packet, n);
	if (ret->header.magic != WIRE_MAGIC)
		*why = "wrong magic";
	else if (!m)
		*why = "unknown message";
	else if (ret->header.kind != WIRE_REQUEST || ret->header.status != 0)
		*why = "no request";
	else if (ret->header.length != m->length + tail ||
		 n != sizeof(ret->header) + m->length + tail)
		*why = "wrong length";
	if (*why)
		return -EPROTO;
	/* m->length is the size of one member of the union */
	memcpy(&ret->hello, (const char *)packet + sizeof(ret->header), m->length);
	switch ((enum wire_type)m->type) {
	case WIRE_HELLO:
		return check_hello(&ret->hello, fds, why);
	case WIRE_REGISTER:
		return check_register(&ret->reg, fds, why);
	case WIRE_STATUS:
	case WIRE_FLUSH:
	case WIRE_GATE:
	case WIRE_LOG_LIST:
		return check_domain(&ret->domain, fds, why);
	case WIRE_RECOVER:
		return check_recover(&ret->recover, fds, why);
	case WIRE_FEATURES:
		return check_features(&ret->features, fds, why);
	case WIRE_LOG_OPEN:
	case WIRE_LOG_READ:
	case WIRE_LOG_TRIM:
	case WIRE_LOG_SYNC:
	case WIRE_LOG_STAT:
	case WIRE_LOG_SEGMENT:
	case WIRE_LOG_REMOVE:
		return check_log(&ret->log, m->type, fds, why);
	case WIRE_LOG_APPEND:
		ret->payload = (const char *)packet + sizeof(ret->header) + m->length;
		return check_append(&ret->append, fds, why);
	}
	*why = "unknown message";
	return -EPROTO;
}
