/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "client/lib/lib.h"

#define TIMEOUT_NS     UINT64_C(5000000000)
#define SOCKET_DEFAULT "/run/pmemlogd/pmemlogd.sock"

const char *pmemlogd_version(void)
{
	return PMEMLOGD_VERSION;
}

/* An argument, or the environment's, or `otherwise`, into buf. */
static int choose(char *buf, size_t n, const char *given, const char *variable,
		  const char *otherwise)
{
	const char *text = given ? given : secure_getenv(variable);

	if (!text || (!given && !*text))
		text = otherwise;
	return !*text || (size_t)snprintf(buf, n, "%s", text) >= n ? -EINVAL : 0;
}

static int options_read(struct pmemlogd *c, const struct pmemlogd_options *o)
{
	static const struct pmemlogd_options none = { .size = sizeof(none) };
	int r;

	o = o ? o : &none;
	if (o->size != sizeof(*o))
		return -EINVAL;
	c->timeout_ns = o->timeout_ms ? o->timeout_ms * UINT64_C(1000000) : TIMEOUT_NS;
	r = choose(c->socket, sizeof(c->socket), o->socket, "PMEMLOGD_SOCKET", SOCKET_DEFAULT);
	if (r < 0)
		return r;
	return choose(c->domain, sizeof(c->domain), o->domain, "PMEMLOGD_DOMAIN", "default");
}

static int connect_session(struct pmemlogd *c)
{
	int fds[2], r;

	/* Closed while we looked: the daemon has made a new one by then. */
	for (int i = 0; i < 3; i++) {
		r = link_hello(c, fds);
		if (r == 0)
			r = attach(c, fds[0], fds[1]);
		if (r != -ESTALE)
			break;
	}
	if (r != -ETIMEDOUT)
		return r;
	r = attach_find(c, &fds[0], &fds[1]);
	return r < 0 ? -ETIMEDOUT : attach(c, fds[0], fds[1]);
}

static void free_connection(struct pmemlogd *c)
{
	link_drop(c);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

int pmemlogd_connect(struct pmemlogd **ret, const struct pmemlogd_options *options)
{
	struct pmemlogd *c;
	no_cancel;
	int r;

	if (!ret)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->socket_fd = c->control_fd = c->s.ctl.fd = -1;
	(void)pthread_mutex_init(&c->lock, NULL);
	c->key = process_key();
	r = c->key ? options_read(c, options) : -ENOMEM;
	/* Known before it has anything that a child may not have. */
	process_add(c);
	if (r == 0)
		r = connect_session(c);
	if (r < 0) {
		process_remove(c);
		free_connection(c);
		return r;
	}
	*ret = c;
	return 0;
}

int pmemlogd_reconnect(struct pmemlogd *c)
{
	no_cancel;
	int r;

	if (!c)
		return -EINVAL;
	r = process_check(c);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&c->lock);
	r = link_check(c);
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}

struct pmemlogd *pmemlogd_disconnect(struct pmemlogd *c)
{
	no_cancel;

	if (!c)
		return NULL;
	while (c->logs)
		(void)pmemlogd_close(c->logs);
	process_remove(c);
	detach(c);
	free_connection(c);
	return NULL;
}

char *pmemlogd_message(struct pmemlogd *c, char *buf, size_t n)
{
	no_cancel;

	if (!buf || n == 0)
		return buf;
	buf[0] = '\0';
	if (!c || process_check(c) < 0)
		return buf;
	(void)pthread_mutex_lock(&c->lock);
	(void)snprintf(buf, n, "%s", c->text);
	(void)pthread_mutex_unlock(&c->lock);
	return buf;
}
