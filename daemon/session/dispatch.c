/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/session/check.h"
#include "daemon/session/connection.h"
#include "daemon/session/reply.h"
#include "daemon/session/request.h"
#include "daemon/session/server.h"

/* ---- refusals ------------------------------------------------------------------------------------ */

static bool refuse(struct connection *c, const struct wire_header *h, int status, const char *text)
{
	if (h->type == WIRE_HELLO || h->type == WIRE_REGISTER || wire_is_log(h->type))
		return reply_refused(c, h->type, h->request_id, status, text);
	return reply_text(c, h->type, h->request_id, status, 1, text, NULL);
}

bool dispatch_refuse_version(struct connection *c, const struct wire_request *request)
{
	char text[128];

	(void)snprintf(text, sizeof(text),
		       "this pmemlogd serves version %u of its interface, the client has %u: "
		       "update the older one",
		       CTL_VERSION, request->hello.version);
	log_msg(LOG_WARNING, request->hello.domain, "client pid %d, user %u: %s", c->pid, c->uid,
		text);
	(void)refuse(c, &request->header, -EPROTO, text);
	return false;
}

/* ---- clients ------------------------------------------------------------------------------------- */

/* fd (may be NULL) goes to the only part, and is the worker's from then on. */
static bool submit(struct connection *c, struct request *r, int *fd)
{
	if (!reply_pending(c, r->type, r->id)) {
		request_cancel(r);
		return false;
	}
	if (fd)
		r->parts->d.fd = take_fd(*fd);
	request_submit(r);
	return true;
}

static bool no_memory(struct connection *c, const struct wire_header *h)
{
	return refuse(c, h, -ENOMEM, "pmemlogd is out of memory; try again");
}

struct domain_count {
	const struct connection *c;
	const char *name;
	uint32_t n;
	bool known;
};

static void count_domain(void *arg, uint32_t uid, const char *name)
{
	struct domain_count *count = arg;

	if (uid != count->c->uid)
		return;
	count->n++;
	if (strcmp(name, count->name) == 0)
		count->known = true;
}

/* A new name costs a lane, and the pool has room for so many: no user may take them all. */
static bool may_have_domain(const struct connection *c, const char *name)
{
	struct domain_count count = { .c = c, .name = name };

	if (c->admin)
		return true;
	(void)domain_set_each(c->server->domains, "", count_domain, &count);
	return count.known || count.n < SERVER_PEER_DOMAINS;
}

static bool on_hello(struct connection *c, const struct wire_request *q)
{
	struct request *r;

	if (c->attached && strcmp(c->domain, q->hello.domain) != 0)
		return refuse(c, &q->header, -EINVAL,
			      "this connection belongs to another domain already; use a new one");
	if (!may_have_domain(c, q->hello.domain)) {
		log_msg(LOG_WARNING, q->hello.domain, "refused: user %u has %u domains already",
			c->uid, SERVER_PEER_DOMAINS);
		return refuse(c, &q->header, -ENOSPC, "this user has too many domains already");
	}
	r = request_new(c, q->header.type, q->header.request_id, 1);
	if (!r)
		return no_memory(c, &q->header);
	memcpy(c->program, q->hello.program, sizeof(c->program));
	r->parts->d.kind = DOMAIN_HELLO;
	r->parts->d.mode = q->hello.want & WIRE_WANT_LANE;
	r->parts->uid = c->uid;
	memcpy(r->parts->name, q->hello.domain, sizeof(r->parts->name));
	log_msg(LOG_DEBUG, q->hello.domain, "HELLO from pid %d, user %u, %s", c->pid, c->uid,
		c->program);
	return submit(c, r, NULL);
}

static bool on_register(struct connection *c, const struct wire_request *q, int *fd)
{
	struct request *r;

	if (!c->attached) {
		log_msg(LOG_WARNING, NULL, "client pid %d, user %u: REGISTER before HELLO", c->pid,
			c->uid);
		(void)refuse(c, &q->header, -EPROTO, "REGISTER before a HELLO that succeeded");
		return false;
	}
	r = request_new(c, q->header.type, q->header.request_id, 1);
	if (!r)
		return no_memory(c, &q->header);
	r->parts->d.kind = DOMAIN_REGISTER;
	r->parts->uid = c->uid;
	memcpy(r->parts->name, c->domain, sizeof(r->parts->name));
	memcpy(r->parts->d.path, q->reg.path, sizeof(r->parts->d.path));
	return submit(c, r, fd);
}

static bool on_status(struct connection *c, const struct wire_request *q)
{
	uint32_t exit_code = 1;
	struct json_object *document =
		domain_set_status(c->server->domains, q->domain.domain, &exit_code);
	bool go_on;

	if (!document)
		return no_memory(c, &q->header);
	go_on = reply_text(c, q->header.type, q->header.request_id, 0, exit_code, "", document);
	json_object_put(document);
	return go_on;
}

/* ---- several domains at once --------------------------------------------------------------------- */

struct target {
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
};

struct targets {
	const struct connection *c;
	struct target *list; /* owned */
	uint32_t n, refused;
	bool no_memory;
};

/* Everybody may ask for his own domains, admins for all. */
static void add_target(void *arg, uint32_t uid, const char *name)
{
	struct targets *t = arg;
	struct target *grown;

	if (!t->c->admin && uid != t->c->uid) {
		t->refused++;
		return;
	}
	grown = realloc(t->list, (t->n + 1) * sizeof(*grown));
	if (!grown) {
		t->no_memory = true;
		return;
	}
	t->list = grown;
	t->list[t->n].uid = uid;
	(void)snprintf(t->list[t->n].name, CTL_DOMAIN_MAX, "%s", name);
	t->n++;
}

/* Fills *t (t->list owned by the caller) or replies itself and returns 0 (go on) or -1 (hang up). */
static int find_targets(struct connection *c, const struct wire_header *h, const char *filter,
			struct targets *t)
{
	char text[256];
	int n;

	*t = (struct targets){ .c = c };
	n = domain_set_each(c->server->domains, filter, add_target, t);
	if (n < 0) {
		(void)snprintf(text, sizeof(text), "%s: there is no such user", filter);
		return refuse(c, h, n, text) ? 0 : -1;
	}
	if (t->no_memory)
		return no_memory(c, h) ? 0 : -1;
	if (t->n > 0)
		return 1;
	if (t->refused) {
		(void)snprintf(text, sizeof(text),
			       "%s belongs to another user; root or its owner may do this",
			       *filter ? filter : "every domain here");
		return refuse(c, h, -EACCES, text) ? 0 : -1;
	}
	if (h->type == WIRE_GATE || !*filter) {
		(void)snprintf(text, sizeof(text), "no domain%s%s is known: nothing is left over",
			       *filter ? " " : "", filter);
		return reply_text(c, h->type, h->request_id, 0, 0, text, NULL) ? 0 : -1;
	}
	(void)snprintf(text, sizeof(text), "%s: no such domain (pmemlogctl status lists them)",
		       filter);
	return refuse(c, h, -ENOENT, text) ? 0 : -1;
}

static bool on_domains(struct connection *c, const struct wire_request *q,
		       enum domain_request_kind kind)
{
	struct targets t;
	struct request *r;
	int found = find_targets(c, &q->header, q->domain.domain, &t);
	cleanup_free struct target *list = t.list;

	if (found <= 0)
		return found == 0;
	r = request_new(c, q->header.type, q->header.request_id, t.n);
	if (!r)
		return no_memory(c, &q->header);
	for (uint32_t i = 0; i < t.n; i++) {
		r->parts[i].d.kind = kind;
		r->parts[i].uid = list[i].uid;
		memcpy(r->parts[i].name, list[i].name, sizeof(list[i].name));
	}
	return submit(c, r, NULL);
}

static bool on_recover(struct connection *c, const struct wire_request *q, int *fd)
{
	struct targets t;
	struct request *r;
	int found = find_targets(c, &q->header, q->recover.domain, &t);
	cleanup_free struct target *list = t.list;

	if (found <= 0)
		return found == 0;
	if (t.n != 1)
		return refuse(c, &q->header, -EINVAL,
			      "several users have a domain of that name; say USER/NAME");
	r = request_new(c, q->header.type, q->header.request_id, 1);
	if (!r)
		return no_memory(c, &q->header);
	r->parts->d.kind = DOMAIN_RECOVER;
	r->parts->d.mode = q->recover.mode;
	r->parts->uid = list->uid;
	memcpy(r->parts->name, list->name, sizeof(list->name));
	return submit(c, r, fd);
}

/* ---- native logs ---------------------------------------------------------------------------------- */

static bool on_features(struct connection *c, const struct wire_request *q)
{
	const struct wire_features_reply body = {
		.version = CTL_VERSION,
		.features = WIRE_FEATURE_LOGS,
		.packet_max = WIRE_LOG_MAX,
		.append_max = WIRE_LOG_PAYLOAD,
		.outstanding = SERVER_OUTSTANDING,
		.logs_max = CTL_LOGS,
	};

	return connection_send(c, q->header.type, WIRE_REPLY, q->header.request_id, 0, &body,
			       sizeof(body), NULL, 0);
}

/* Whose log is meant: 1 and *ret, and from now on that domain is not closed while this client is there; or replies
 * itself and returns 0 (go on) or -1 (hang up). */
static int log_target(struct connection *c, const struct wire_header *h, const char *domain,
		      struct target *ret)
{
	struct targets t;
	int found;

	if (!*domain) {
		if (!c->attached)
			return refuse(c, h, -EPROTO,
				      "a log's message before a HELLO that succeeded")
				       ? 0
				       : -1;
		ret->uid = c->uid;
		memcpy(ret->name, c->domain, sizeof(ret->name));
		connection_logs(c, ret->uid, ret->name);
		return 1;
	}
	found = find_targets(c, h, domain, &t);
	if (found == 1 && t.n != 1)
		found = refuse(c, h, -EINVAL,
			       "several users have a domain of that name; say USER/NAME")
				? 0
				: -1;
	if (found == 1) {
		*ret = t.list[0];
		connection_logs(c, ret->uid, ret->name);
	}
	free(t.list);
	return found;
}

static bool submit_log(struct connection *c, struct request *r)
{
	/* An append is mostly answered sooner than "pending" would be; nobody needs to be told. */
	if (r->type != WIRE_LOG_APPEND && !reply_pending(c, r->type, r->id)) {
		request_cancel(r);
		return false;
	}
	request_submit(r);
	return true;
}

static bool on_append(struct connection *c, const struct wire_request *q)
{
	const struct wire_header *h = &q->header;
	struct target target;
	struct domain_request *d;
	struct request *r;
	int found = log_target(c, h, q->append.domain, &target);

	if (found <= 0)
		return found == 0;
	r = request_new(c, h->type, h->request_id, 1);
	if (!r)
		return no_memory(c, h);
	d = &r->parts->d;
	d->kind = DOMAIN_LOG;
	d->mode = h->type;
	r->parts->uid = target.uid;
	memcpy(r->parts->name, target.name, sizeof(target.name));
	memcpy(d->log.name, q->append.name, sizeof(d->log.name));
	d->data = malloc(q->append.length);
	if (!d->data) {
		request_cancel(r);
		return no_memory(c, h);
	}
	memcpy(d->data, q->payload, q->append.length);
	d->data_length = q->append.length;
	/* Of one connection they are done in the order in which they came. */
	if (c->appends == 0 && domain_log_append(c->server->domains, target.uid, target.name, d)) {
		bool go_on = reply_log(c, r);

		request_cancel(r);
		return go_on;
	}
	c->appends++;
	return submit_log(c, r);
}

static bool on_log(struct connection *c, const struct wire_request *q)
{
	const struct wire_header *h = &q->header;
	struct target target;
	struct request *r;
	int found = log_target(c, h, q->log.domain, &target);

	if (found <= 0)
		return found == 0;
	r = request_new(c, h->type, h->request_id, 1);
	if (!r)
		return no_memory(c, h);
	r->parts->d.kind = DOMAIN_LOG;
	r->parts->d.mode = h->type;
	r->parts->d.log = q->log;
	r->parts->uid = target.uid;
	memcpy(r->parts->name, target.name, sizeof(target.name));
	return submit_log(c, r);
}

bool dispatch(struct connection *c, const struct wire_request *q, int *fd)
{
	if (!c->allowed) {
		log_msg(LOG_NOTICE, NULL,
			"client pid %d, user %u: refused (allow_users, allow_groups)", c->pid,
			c->uid);
		(void)refuse(c, &q->header, -EACCES,
			     "this user may not use pmemlogd (allow_users, allow_groups in "
			     "pmemlogd.conf)");
		return false;
	}
	if (wire_is_admin(q->header.type) && !c->admin)
		return refuse(c, &q->header, -EACCES, "only root may do this");
	if (c->server->stopping)
		return refuse(c, &q->header, -ESHUTDOWN, "pmemlogd is stopping");
	switch ((enum wire_type)q->header.type) {
	case WIRE_HELLO:
		return on_hello(c, q);
	case WIRE_REGISTER:
		return on_register(c, q, fd);
	case WIRE_STATUS:
		return on_status(c, q);
	case WIRE_FLUSH:
		return on_domains(c, q, DOMAIN_FLUSH);
	case WIRE_GATE:
		return on_domains(c, q, DOMAIN_GATE);
	case WIRE_RECOVER:
		return on_recover(c, q, fd);
	case WIRE_FEATURES:
		return on_features(c, q);
	case WIRE_LOG_APPEND:
		return on_append(c, q);
	case WIRE_LOG_OPEN:
	case WIRE_LOG_READ:
	case WIRE_LOG_TRIM:
	case WIRE_LOG_SYNC:
	case WIRE_LOG_STAT:
	case WIRE_LOG_SEGMENT:
	case WIRE_LOG_REMOVE:
		return on_log(c, q);
	case WIRE_LOG_LIST:
		return on_domains(c, q, DOMAIN_LOG_LIST);
	}
	return false;
}
