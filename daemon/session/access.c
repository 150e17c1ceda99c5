/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config.h"
#include "daemon/log.h"

/* A number stands for itself; -1 is no id (it means "unchanged" in many calls). */
static bool parse_id(const char *text, unsigned *ret)
{
	unsigned long long v;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || v >= UINT32_MAX)
		return false;
	*ret = (unsigned)v;
	return true;
}

static bool find_user(const char *name, unsigned *ret)
{
	/* main thread only, at start and reload */
	const struct passwd *p = getpwnam(name);

	if (!p)
		return false;
	*ret = p->pw_uid;
	return true;
}

static bool find_group(const char *name, unsigned *ret)
{
	const struct group *g = getgrnam(name);

	if (!g)
		return false;
	*ret = g->gr_gid;
	return true;
}

static int list_build(struct access_list *l, char *const *names, const char *key,
		      bool (*find)(const char *name, unsigned *ret))
{
	unsigned n = 0;

	while (names[n])
		n++;
	*l = (struct access_list){ 0 };
	l->ids = calloc(n + 1u, sizeof(*l->ids));
	if (!l->ids)
		return -ENOMEM;
	for (char *const *p = names; *p; p++) {
		if (strcmp(*p, "*") == 0)
			l->all = true;
		else if (parse_id(*p, &l->ids[l->n]) || find(*p, &l->ids[l->n]))
			l->n++;
		else
			log_msg(LOG_WARNING, NULL,
				"%s: nobody is called \"%s\" here; reload when the name is there",
				key, *p);
	}
	return 0;
}

int access_build(struct access *a, const struct config *c)
{
	struct access fresh = { 0 };
	int r;

	r = list_build(&fresh.users, c->allow_users, "allow_users", find_user);
	if (r == 0)
		r = list_build(&fresh.groups, c->allow_groups, "allow_groups", find_group);
	if (r < 0) {
		access_deinit(&fresh);
		return r;
	}
	access_deinit(a);
	*a = fresh;
	return 0;
}

void access_deinit(struct access *a)
{
	free(a->users.ids);
	free(a->groups.ids);
	*a = (struct access){ 0 };
}

bool access_is_admin(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static bool list_has(const struct access_list *l, unsigned id)
{
	for (unsigned i = 0; i < l->n; i++)
		if (l->ids[i] == id)
			return true;
	return false;
}

bool access_allows(const struct access *a, uid_t uid, gid_t gid, const gid_t *groups, unsigned n)
{
	if (access_is_admin(uid) || a->users.all || a->groups.all)
		return true;
	if (list_has(&a->users, uid) || list_has(&a->groups, gid))
		return true;
	for (unsigned i = 0; i < n; i++)
		if (list_has(&a->groups, groups[i]))
			return true;
	return false;
}
