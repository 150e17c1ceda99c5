/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/unit.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/unit_file.h"

/* In the order in which the first wins. */
static const char *const folders[] = {
	"/etc/systemd/system", "/run/systemd/system",	  "/usr/local/lib/systemd/system",
	"/lib/systemd/system", "/usr/lib/systemd/system",
};
#define FOLDERS (sizeof(folders) / sizeof(*folders))

/* Programs that start a server, and the servers. The first word of a command line that is one of them counts:
 * units start through a shell. */
static const struct {
	const char *program, *server;
	enum unit_kind kind;
} programs[] = {
	{ "mariadbd", "mariadbd", UNIT_MARIADB },
	{ "mariadbd-safe", "mariadbd", UNIT_MARIADB },
	{ "mysqld", "mysqld", UNIT_MYSQL },
	{ "mysqld_safe", "mysqld", UNIT_MYSQL },
	{ "mysqld_multi", "mysqld", UNIT_MYSQL },
	{ "postgres", "postgres", UNIT_POSTGRES },
	{ "postmaster", "postgres", UNIT_POSTGRES },
	{ "pg_ctl", "postgres", UNIT_POSTGRES },
	{ "pg_ctlcluster", "postgres", UNIT_PG_CLUSTER },
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *root_read(const char *root, const char *path)
{
	const size_t most = 1u << 20;
	char whole[CTL_PATH_MAX];
	cleanup_fclose FILE *f = NULL;
	char *text;
	size_t n;
	struct stat st;

	(void)snprintf(whole, sizeof(whole), "%s%s", root, path);
	/* a FIFO would be waited for */
	if (stat(whole, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	f = fopen(whole, "re");
	text = f ? malloc(most + 1) : NULL;
	if (!text)
		return NULL;
	n = fread(text, 1, most + 1, f);
	if (n > most) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

/* ROOT/FOLDER/NAME into u->file; an alias (a link to another unit) changes the name. */
static bool find_file(struct unit *u, const char *name)
{
	for (size_t i = 0; i < FOLDERS; i++) {
		char whole[CTL_PATH_MAX], link[CTL_PATH_MAX];
		struct stat st;
		ssize_t n;

		(void)snprintf(u->file, sizeof(u->file), "%s/%s", folders[i], name);
		(void)snprintf(whole, sizeof(whole), "%s%s", u->root, u->file);
		if (lstat(whole, &st) < 0)
			continue;
		n = S_ISLNK(st.st_mode) ? readlink(whole, link, sizeof(link) - 1) : -1;
		if (n <= 0)
			return true;
		link[n] = '\0';
		/* /dev/null: masked */
		if (strcmp(base_of(link), name) == 0 || strlen(base_of(link)) >= UNIT_NAME_MAX ||
		    !strstr(base_of(link), ".service"))
			return true;
		(void)snprintf(u->name, sizeof(u->name), "%.255s", base_of(link));
		(void)snprintf(u->shape, sizeof(u->shape), "%s", u->name);
		return find_file(u, u->name);
	}
	return false;
}

static int find(struct unit *u, const char *word)
{
	const char *at = strchr(word, '@');
	size_t n = strlen(word);
	bool suffix = n > 8 && strcmp(word + n - 8, ".service") == 0;

	if (n == 0 || n + 9 > sizeof(u->name) || strchr(word, '/') || *word == '.' ||
	    strpbrk(word, " \t\n*?[\"'\\"))
		return ctl_fail(CTL_USAGE, "\"%s\" is no name of a unit", word);
	(void)snprintf(u->name, sizeof(u->name), "%s%s", word, suffix ? "" : ".service");
	(void)snprintf(u->shape, sizeof(u->shape), "%s", u->name);
	if (at) {
		size_t length = strlen(u->name) - 8 - (size_t)(at + 1 - word);

		if (length == 0)
			return ctl_fail(CTL_USAGE,
					"%s is a template: name an instance, %s15-main for example",
					word, word);
		(void)snprintf(u->instance, sizeof(u->instance), "%.*s", (int)length, at + 1);
		(void)snprintf(u->shape, sizeof(u->shape), "%.*s@.service", (int)(at - word), word);
		if (find_file(u, u->name) || find_file(u, u->shape))
			return 0;
	} else if (find_file(u, u->name)) {
		return 0;
	}
	return ctl_fail(CTL_REFUSED,
			"there is no unit %s; systemctl list-unit-files 'm*' 'postgresql*'",
			u->name);
}

bool preload_is_ours(const char *value)
{
	return strstr(value, "libpmemlogd-preload.so") != NULL;
}

void preload_without_ours(char *value)
{
	char kept[1024] = "", *rest = NULL;

	for (char *part = strtok_r(value, ": \t", &rest); part;
	     part = strtok_r(NULL, ": \t", &rest)) {
		if (preload_is_ours(part) || strlen(kept) + strlen(part) + 2 > sizeof(kept))
			continue;
		if (*kept)
			(void)strcat(kept, " ");
		(void)strcat(kept, part);
	}
	strcpy(value, kept); /* NOLINT: no longer than it was */
}

static void take_preload(struct unit *u, const char *value)
{
	u->loads = preload_is_ours(value);
	(void)snprintf(u->preload, sizeof(u->preload), "%s", value);
	preload_without_ours(u->preload);
}

static void take_environment(void *arg, const char *word)
{
	struct unit *u = arg;

	if (strncmp(word, "LD_PRELOAD=", 11) == 0)
		take_preload(u, word + 11);
	if (strncmp(word, "PMEMLOGD_DOMAIN=", 16) == 0)
		(void)snprintf(u->domain, sizeof(u->domain), "%s", word + 16);
}

static void take_program(void *arg, const char *word)
{
	struct unit *u = arg;
	const char *name = base_of(word + strspn(word, "-@:+!"));

	if (u->kind != UNIT_OTHER)
		return;
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (strcmp(programs[i].program, name) != 0)
			continue;
		u->kind = programs[i].kind;
		(void)snprintf(u->program, sizeof(u->program), "%s", word + strspn(word, "-@:+!"));
		(void)snprintf(u->server, sizeof(u->server), "%s", programs[i].server);
		return;
	}
	if (!*u->program) {
		(void)snprintf(u->program, sizeof(u->program), "%s", word + strspn(word, "-@:+!"));
		(void)snprintf(u->server, sizeof(u->server), "%.63s", name);
	}
}

static void take_file(struct unit *u, const char *value)
{
	cleanup_free char *text = NULL;
	char found[1024];

	value += strspn(value, "-");
	text = root_read(u->root, value);
	if (text && assignment(text, "LD_PRELOAD", found, sizeof(found))) {
		(void)snprintf(u->preload_file, sizeof(u->preload_file), "%s", value);
		take_preload(u, found);
	}
}

static void take_gate(struct unit *u, const char *value)
{
	const char *gate = strstr(value, "pmemlogctl gate ");

	if (gate)
		(void)sscanf(gate, "pmemlogctl gate %127s", u->gated);
}

static void take(void *arg, const char *section, const char *key, const char *value)
{
	struct unit *u = arg;

	if (strcmp(section, "Service") != 0)
		return;
	if (strcmp(key, "ExecStart") == 0) {
		if (!*value) {
			u->kind = UNIT_OTHER;
			u->program[0] = '\0';
		}
		unit_file_words(value, true, take_program, u);
	} else if (strcmp(key, "Environment") == 0) {
		unit_file_words(value, false, take_environment, u);
	} else if (strcmp(key, "EnvironmentFile") == 0) {
		take_file(u, value);
	} else if (strcmp(key, "User") == 0) {
		(void)snprintf(u->user, sizeof(u->user), "%.63s", value);
	} else if (strcmp(key, "ProtectSystem") == 0) {
		u->strict = strcmp(value, "strict") == 0;
	} else if (strcmp(key, "ExecStartPre") == 0) {
		take_gate(u, value);
	}
}

bool assignment(const char *text, const char *name, char *ret, size_t n)
{
	size_t length = strlen(name);
	bool found = false;

	for (const char *line = text; line && *line;
	     line = strchr(line, '\n'), line += line != NULL) {
		const char *p = line + strspn(line, " \t\n");
		size_t end;

		if (strncmp(p, "export ", 7) == 0)
			p += 7;
		if (strncmp(p, name, length) != 0)
			continue;
		p += length;
		p += strspn(p, " \t");
		if (*p != '=')
			continue;
		p++;
		p += strspn(p, " \t'\"");
		end = strcspn(p, "\n");
		while (end > 0 && strchr(" \t'\"\r", p[end - 1]))
			end--;
		(void)snprintf(ret, n, "%.*s", (int)end, p);
		found = true;
	}
	return found;
}

static int is_conf(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0;
}

static int compare(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Drop-ins of one name, of all folders. systemd sorts them by file name across the folders; two of one name
 * (a rare thing) are both read here. */
static void each_dropin(const struct unit *u, const char *name,
			void (*each)(void *arg, const char *path, const char *text), void *arg)
{
	for (size_t i = FOLDERS; i-- > 0;) {
		char whole[CTL_PATH_MAX], path[CTL_PATH_MAX];
		struct dirent **list;
		int n;

		(void)snprintf(whole, sizeof(whole), "%s%s/%s.d", u->root, folders[i], name);
		n = scandir(whole, &list, is_conf, compare);
		for (int k = 0; k < n; k++) {
			cleanup_free char *text = NULL;

			(void)snprintf(path, sizeof(path), "%s/%s.d/%s", folders[i], name,
				       list[k]->d_name);
			text = root_read(u->root, path);
			if (text)
				each(arg, path, text);
			free(list[k]);
		}
		if (n >= 0)
			free(list);
	}
}

static void parse(void *arg, const char *path, const char *text)
{
	(void)path;
	unit_file_parse(text, take, arg);
}

void unit_each_source(const struct unit *u,
		      void (*each)(void *arg, const char *path, const char *text), void *arg)
{
	static const char *const others[] = {
		"/etc/environment",
		"/etc/ld.so.preload",
		"/etc/default/mysql",
		"/etc/default/mariadb",
		"/etc/sysconfig/mysql",
		"/etc/sysconfig/mariadb",
		"/etc/sysconfig/mysqld",
		"/etc/mysql/my.cnf",
		"/etc/my.cnf",
		"/etc/mysql/conf.d/mysqld_safe_syslog.cnf",
		"/etc/mysql/mariadb.conf.d/50-mysqld_safe.cnf",
	};
	cleanup_free char *unit = root_read(u->root, u->file);

	if (unit)
		each(arg, u->file, unit);
	if (strcmp(u->shape, u->name) != 0)
		each_dropin(u, u->shape, each, arg);
	each_dropin(u, u->name, each, arg);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		cleanup_free char *text = root_read(u->root, others[i]);

		if (text)
			each(arg, others[i], text);
	}
	if (*u->preload_file) {
		cleanup_free char *text = root_read(u->root, u->preload_file);

		if (text)
			each(arg, u->preload_file, text);
	}
	if (*u->environment) {
		cleanup_free char *text = root_read(u->root, u->environment);

		if (text)
			each(arg, u->environment, text);
	}
}

/* pg_ctlcluster: /etc/postgresql/15/main/environment; the cluster's owner is its user. */
static void take_cluster(struct unit *u)
{
	const char *dash = strchr(u->instance, '-');
	cleanup_free char *text = NULL;
	char found[1024];

	if (u->kind != UNIT_PG_CLUSTER || !dash)
		return;
	(void)snprintf(u->environment, sizeof(u->environment),
		       "/etc/postgresql/%.*s/%s/environment", (int)(dash - u->instance),
		       u->instance, dash + 1);
	if (!*u->user)
		strcpy(u->user, "postgres"); /* NOLINT: fits */
	u->loads = false;
	u->preload[0] = '\0';
	text = root_read(u->root, u->environment);
	if (!text)
		return;
	if (assignment(text, "LD_PRELOAD", found, sizeof(found)))
		take_preload(u, found);
	if (assignment(text, "PMEMLOGD_DOMAIN", found, sizeof(found)))
		(void)snprintf(u->domain, sizeof(u->domain), "%.63s", found);
}

/* %i and %I, the only specifiers in what is looked at here. */
static void resolve_gate(struct unit *u)
{
	char *i = strstr(u->gated, "%i");
	char whole[sizeof(u->gated) + UNIT_NAME_MAX];

	if (!i)
		return;
	(void)snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(i - u->gated), u->gated, u->instance,
		       i + 2);
	(void)snprintf(u->gated, sizeof(u->gated), "%.127s", whole);
}

int unit_load(struct unit *u, const char *root, const char *word)
{
	cleanup_free char *text = NULL;
	int code;

	memset(u, 0, sizeof(*u));
	u->root = root;
	code = find(u, word);
	if (code != 0)
		return code;
	text = root_read(root, u->file);
	if (!text)
		return ctl_fail(CTL_REFUSED, "%s%s: cannot be read, or is masked: %s", root,
				u->file, strerror(errno));
	unit_file_parse(text, take, u);
	if (strcmp(u->shape, u->name) != 0)
		each_dropin(u, u->shape, parse, u);
	each_dropin(u, u->name, parse, u);
	(void)snprintf(u->dropin, sizeof(u->dropin), "/etc/systemd/system/%s.d/pmemlogd.conf",
		       u->name);
	take_cluster(u);
	resolve_gate(u);
	return 0;
}
