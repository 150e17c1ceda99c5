/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which log of which domain is meant, and what the daemon says about it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/cleanup.h"
#include "client/ctl/log.h"

const char *log_domain_option(const char *option)
{
	const char *env = getenv("PMEMLOGD_DOMAIN");

	return option ? option : env && *env ? env : "default";
}

const char *log_json_text(struct json_object *o, const char *name)
{
	struct json_object *m;

	return json_object_object_get_ex(o, name, &m) ? json_object_get_string(m) : "";
}

uint64_t log_json_number(struct json_object *o, const char *name)
{
	struct json_object *m;

	return json_object_object_get_ex(o, name, &m) ? json_object_get_uint64(m) : 0;
}

/* *ret_status: what the daemon answered, if it is below 0 (nothing told then). */
static int list(struct ctl *c, const char *domain, struct json_object **ret, int *ret_status)
{
	const char *socket = ctl_socket(c);
	cleanup_free char *document = NULL;
	struct json_object *root, *logs;
	struct answer a;
	int r;

	*ret = NULL;
	*ret_status = 0;
	if (!socket)
		return CTL_CONFIG;
	r = ctl_ask_domain(socket, WIRE_LOG_LIST, domain, CTL_PATIENCE_MS, NULL, &a);
	if (r == -ENAMETOOLONG)
		return ctl_fail(CTL_USAGE, "log: no domain has so long a name");
	if (r < 0)
		return ctl_unreachable(socket, r);
	document = a.document;
	*ret_status = a.status;
	if (a.status == -ENOENT)
		return 0;
	if (a.status < 0 || a.reply.exit != 0)
		return ctl_report(&a);
	/* no domain is known yet, and no log */
	if (!document) {
		*ret = json_object_new_array();
		return 0;
	}
	root = json_tokener_parse(document);
	if (json_object_object_get_ex(root, "logs", &logs) &&
	    json_object_is_type(logs, json_type_array))
		*ret = json_object_get(logs);
	json_object_put(root);
	return *ret ? 0
		    : ctl_fail(CTL_REFUSED,
			       "the daemon's answer is no list of logs: are pmemlogctl "
			       "and pmemlogd of one version?");
}

int log_list(struct ctl *c, const char *domain, struct json_object **ret)
{
	int status, code = list(c, domain, ret, &status);

	if (code == 0 && !*ret)
		return ctl_fail(CTL_REFUSED, "%s: no such domain (pmemlogctl status lists them)",
				domain);
	return code;
}

struct found {
	unsigned own, others;
	uint32_t uid;
};

static void look(struct json_object *logs, const char *name, struct found *ret)
{
	for (size_t i = 0; logs && i < json_object_array_length(logs); i++) {
		struct json_object *o = json_object_array_get_idx(logs, i);
		uint32_t uid = (uint32_t)log_json_number(o, "uid");

		if (strcmp(log_json_text(o, "name"), name) != 0)
			continue;
		if (uid == geteuid()) {
			ret->own++;
			ret->uid = uid;
		} else {
			ret->others++;
			if (!ret->own)
				ret->uid = uid;
		}
	}
}

/* NAME of NAME or USER/NAME. */
static const char *name_of(const char *domain)
{
	const char *slash = strchr(domain, '/');

	return slash ? slash + 1 : domain;
}

/* Where the log is, or is to be made. 0 or an exit code (told). */
static int place(struct ctl *c, const char *domain, const char *name, bool make, struct log_link *l)
{
	struct found found = { 0 };
	struct json_object *logs;
	char user[64];
	int status, code = list(c, domain, &logs, &status);

	if (code != 0)
		return code;
	look(logs, name, &found);
	json_object_put(logs);
	if (!found.own && found.others > 1)
		return ctl_fail(CTL_REFUSED,
				"%s: several users have a log of that name in a domain %s; "
				"say --domain USER/%s",
				name, domain, domain);
	if (found.own || found.others) {
		(void)snprintf(l->domain, sizeof(l->domain), "%s/%s",
			       ctl_user(user, sizeof(user), found.uid), name_of(domain));
		/* as a session of one's own, the domain does not end meanwhile */
		if (found.own)
			(void)snprintf(l->hello, sizeof(l->hello), "%s", name_of(domain));
		return 0;
	}
	if (!make)
		return ctl_fail(CTL_REFUSED, "%s: no such log in domain %s (pmemlogctl log list)",
				name, domain);
	if (name_of(domain) != domain) {
		(void)snprintf(l->domain, sizeof(l->domain), "%s", domain);
		return 0;
	}
	if (strlen(domain) >= sizeof(l->hello))
		return ctl_fail(CTL_USAGE, "log: no domain has so long a name");
	memcpy(l->hello, domain, strlen(domain) + 1);
	return 0;
}

static bool name_ok(const char *name)
{
	static const char set[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@-";

	return *name && *name != '.' && strlen(name) < CTL_LOG_NAME_MAX &&
	       name[strspn(name, set)] == '\0';
}

int log_begin(struct ctl *c, const char *domain, const char *name, bool make, struct log_link *ret)
{
	int code;

	*ret = (struct log_link){ .fd = -1, .name = name };
	domain = log_domain_option(domain);
	if (!name_ok(name))
		return ctl_fail(
			CTL_USAGE,
			"\"%s\" is no name of a log: 1 to 63 of A-Z a-z 0-9 _ . @ -, no dot first",
			name);
	if (!*domain)
		return ctl_fail(CTL_USAGE, "log: the domain has no name");
	ret->socket = ctl_socket(c);
	if (!ret->socket)
		return CTL_CONFIG;
	code = place(c, domain, name, make, ret);
	if (code != 0)
		return code;
	code = link_open(ret);
	return code < 0 ? ctl_unreachable(ret->socket, code) : code;
}

int log_ask(struct log_link *l, uint16_t type, struct wire_log *q, struct log_answer *ret)
{
	memcpy(q->name, l->name, strlen(l->name) + 1);
	if (!*l->hello)
		memcpy(q->domain, l->domain, sizeof(q->domain));
	return link_ask(l, type, q, sizeof(*q), NULL, 0, ret);
}

int log_refused(const struct log_link *l, uint16_t type, int error, const struct log_answer *a)
{
	const char *text;

	if (error < 0)
		return ctl_unreachable(l->socket, error);
	text = type == WIRE_LOG_READ ? a->data.text : a->reply.text;
	if (a->status == -ERANGE)
		text = "what was to be read has been trimmed";
	else if (!*text)
		text = strerror(-a->status);
	return ctl_fail(a->status == -ESHUTDOWN ? CTL_UNREACHABLE : CTL_REFUSED, "%s: %s", l->name,
			text);
}
