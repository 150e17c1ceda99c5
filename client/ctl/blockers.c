/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/blockers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/rules.h"

void blockers_program(const char *root, const char *program, struct json_object *list)
{
	char whole[CTL_PATH_MAX], caps[64];
	struct stat st;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, program);
	if (stat(whole, &st) < 0)
		return;
	if (st.st_mode & (S_ISUID | S_ISGID))
		advice_add(list, ADVICE_FAULT, "set-id",
			   "chmod ug-s on it; start it as the user that it is to be",
			   "%s is set-%s-ID: the loader leaves the library out", program,
			   st.st_mode & S_ISUID ? "user" : "group");
	if (getxattr(whole, "security.capability", caps, sizeof(caps)) > 0)
		advice_add(
			list, ADVICE_FAULT, "file-capability",
			"setcap -r on it; give the capability by AmbientCapabilities= of its unit",
			"%s bears file capabilities: the loader leaves the library out", program);
}

static void check_library(const struct unit *u, struct json_object *list)
{
	char whole[CTL_PATH_MAX];

	(void)snprintf(whole, sizeof(whole), "%s%s", u->root, CTL_PRELOAD_PATH);
	if (access(whole, R_OK) < 0)
		advice_add(list, ADVICE_FAULT, "wrong-path",
			   "install the package, or move the library there",
			   "the library is not at %s: the loader would go on without it",
			   CTL_PRELOAD_PATH);
}

static void check_rules(const struct unit *u, struct json_object *list)
{
	if (rules_load(u->root, NULL, u->server) == 0)
		advice_add(
			list, ADVICE_FAULT, "no-rule",
			"put a rule into /etc/pmemlogd/preload.d, pmemlogd-preload(7); examples lie in "
			"/usr/share/doc/pmemlogd/examples/preload.d",
			"no rule names the program %s: no file would be taken", u->server);
}

static void check_apparmor(const struct unit *u, struct json_object *list)
{
	static const struct {
		const char *profile, *local;
	} known[] = {
		{ "/etc/apparmor.d/usr.sbin.mysqld", "/etc/apparmor.d/local/usr.sbin.mysqld" },
		{ "/etc/apparmor.d/usr.sbin.mariadbd", "/etc/apparmor.d/local/usr.sbin.mariadbd" },
	};
	char remedy[512];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		cleanup_free char *profile = root_read(u->root, known[i].profile);
		cleanup_free char *local = root_read(u->root, known[i].local);

		if (!profile || !strstr(known[i].profile, u->server) ||
		    (local && strstr(local, "pmemlogd")) || strstr(profile, "pmemlogd") ||
		    /* Debian's for MariaDB: a comment, and no profile */
		    !strchr(profile, '{'))
			continue;
		(void)snprintf(remedy, sizeof(remedy),
			       "add the lines of /usr/share/doc/pmemlogd/examples/apparmor.d/local/"
			       "usr.sbin.mysqld to %s, then apparmor_parser -r %s",
			       known[i].local, known[i].profile);
		advice_add(list, ADVICE_NOTE, "apparmor", remedy,
			   "%s does not let the library reach the daemon and the pool",
			   known[i].profile);
	}
}

static void check_selinux(const struct unit *u, struct json_object *list)
{
	cleanup_free char *text = root_read(u->root, "/etc/selinux/config");
	char mode[64];

	if (text && assignment(text, "SELINUX", mode, sizeof(mode)) &&
	    strcmp(mode, "enforcing") == 0)
		advice_add(
			list, ADVICE_NOTE, "selinux",
			"after the restart: pmemlogctl check; where the library is missing, a policy "
			"module with noatsecure for init_t to the database's domain",
			"SELinux is enforcing: a change of domain at the start may keep the library out");
}

void blockers_find(const struct unit *u, struct json_object *list)
{
	if (u->kind == UNIT_OTHER && strcmp(u->server, "true") == 0)
		advice_add(
			list, ADVICE_FAULT, "no-server",
			"name the cluster's own unit: postgresql@15-main, for example; pg_lsclusters",
			"%s starts no server by itself", u->name);
	check_library(u, list);
	blockers_program(u->root, u->program, list);
	if (*u->preload_file)
		advice_add(
			list, ADVICE_FAULT, "environment-file",
			"take LD_PRELOAD out of that file; if it is wanted, put it into the unit: "
			"Environment=LD_PRELOAD=...",
			"%s sets LD_PRELOAD, and goes before what a drop-in says", u->preload_file);
	check_rules(u, list);
	check_apparmor(u, list);
	check_selinux(u, list);
}
