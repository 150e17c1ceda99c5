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

int wire_check(struct wire_request *ret, const void *packet, size_t n, unsigned fds,
	       const char **why)
{
	const struct message *m;

	memset(ret, 0, sizeof(*ret));
	*why = NULL;
	if (n < sizeof(ret->header)) {
		*why = "shorter than a header";
		return -EPROTO;
	}
	memcpy(&ret->header, packet, sizeof(ret->header));
	m = message_find(ret->header.type);
	if (ret->header.magic != WIRE_MAGIC)
		*why = "wrong magic";
	else if (!m)
		*why = "unknown message";
	else if (ret->header.kind != WIRE_REQUEST || ret->header.status != 0)
		*why = "no request";
	else if (ret->header.length != m->length || n != sizeof(ret->header) + m->length)
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
		return check_domain(&ret->domain, fds, why);
	case WIRE_RECOVER:
		return check_recover(&ret->recover, fds, why);
	}
	*why = "unknown message";
	return -EPROTO;
}
