/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/local.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pool/guard.h"

static bool find_user(const char *text, uint32_t *ret)
{
	const struct passwd *p = getpwnam(text);
	unsigned long long v;
	char *end;

	if (p) {
		*ret = p->pw_uid;
		return true;
	}
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || v >= UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

int local_name(const char *text, struct domain_name *ret)
{
	const char *slash = strchr(text, '/');
	const char *name = slash ? slash + 1 : text;
	char user[64];

	memset(ret, 0, sizeof(*ret));
	ret->any_user = !slash;
	if (!*name || strlen(name) >= sizeof(ret->name) || strchr(name, '/') || slash == text ||
	    (slash && (size_t)(slash - text) >= sizeof(user)))
		return ctl_fail(CTL_USAGE, "\"%s\" is no NAME and no USER/NAME", text);
	if (slash) {
		memcpy(user, text, (size_t)(slash - text));
		user[slash - text] = '\0';
		if (!find_user(user, &ret->uid))
			return ctl_fail(CTL_REFUSED, "%s: there is no user \"%s\"", text, user);
	}
	memcpy(ret->name, name, strlen(name) + 1);
	return 0;
}

int local_find(struct pool *p, const struct domain_name *name, uint32_t from,
	       struct pool_domain *ret)
{
	for (uint32_t i = from; i < POOL_DOMAINS; i++) {
		if (catalog_domain_get(p, i, ret) < 0)
			continue;
		if (strcmp(ret->name, name->name) == 0 && (name->any_user || ret->uid == name->uid))
			return (int)i;
	}
	return -ENOENT;
}

int local_find_one(struct pool *p, const struct domain_name *name, struct pool_domain *ret)
{
	struct pool_domain other;
	int index = local_find(p, name, 0, ret);

	if (index >= 0 && local_find(p, name, (uint32_t)index + 1, &other) >= 0)
		return -EINVAL;
	return index;
}

bool local_nobody_there(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED || error == -ECONNRESET ||
	       error == -EPIPE;
}

int local_make_state_dir(const struct config *config)
{
	if (mkdir(config->state_dir, 0700) < 0 && errno != EEXIST)
		return ctl_fail(CTL_REFUSED, "%s: cannot be made: %s", config->state_dir,
				strerror(errno));
	return 0;
}

int local_open(struct ctl *c, bool read_only, struct pool **ret)
{
	struct pool_error error = { "" };
	const struct config *config;
	int r;

	*ret = NULL;
	config = ctl_config(c);
	if (!config)
		return CTL_CONFIG;
	if (!read_only) {
		r = local_make_state_dir(config);
		if (r != 0)
			return r;
	}
	r = guard_install();
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "no handler for SIGBUS: %s", strerror(-r));
	r = pool_open(ret, config->pool, config->state_dir, config->emulate, read_only, &error);
	if (r == -EBUSY)
		return r;
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "no daemon, and the pool cannot be used: %s",
				error.text[0] ? error.text : strerror(-r));
	if ((*ret)->warning[0])
		ctl_fail(0, "%s", (*ret)->warning);
	return 0;
}
