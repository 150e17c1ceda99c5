/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rules from the files of preload.d, read once in the constructor. */
#include "client/preload/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/overflow.h"
#include "base/sys.h"
#include "client/preload/folder.h"
#include "client/preload/log.h"

#define RULES_FOLDER   "/etc/pmemlogd/preload.d"
#define DEFAULT_SOCKET "/run/pmemlogd/pmemlogd.sock"
#define FILE_MAX_BYTES 16384
#define PATTERNS_MAX   256
#define TEXT_BYTES     16384
#define FILES_MAX      64
#define NAME_BYTES     64
#define DIRENTS_BYTES  8192

struct shim_config config;

enum pattern_kind {
	PATTERN_PATH,
	PATTERN_EXCLUDE
};

struct pattern {
	const char *glob;
	const char *last; /* its part after the last '/', or NULL: any name may match */
	uint32_t rule;
	enum pattern_kind kind;
};

/* Constant after the constructor. */
static struct pattern patterns[PATTERNS_MAX];
static unsigned pattern_count;
static char text[TEXT_BYTES]; /* the globs' bytes */
static size_t text_used;
static uint32_t rule_count;

/* The section that is being read. */
static struct {
	char section[128];
	bool any;      /* a section was begun */
	bool program;  /* it names this program */
	bool broken;   /* something in it did not fit */
	bool fault;    /* a rule of this file was broken */
	uint32_t rule; /* its number */
	unsigned first_pattern;
	size_t first_text;
	char domain[CTL_DOMAIN_MAX];
} reading;

/* A section ends: kept if it names this program and has a path. */
static void finish_rule(void)
{
	bool path = false;

	for (unsigned i = reading.first_pattern; i < pattern_count; i++)
		path |= patterns[i].kind == PATTERN_PATH;
	reading.fault |= reading.broken;
	if (!reading.any || !reading.program || reading.broken || !path) {
		pattern_count = reading.first_pattern;
		text_used = reading.first_text;
	} else {
		reading.rule++;
		if (!config.domain[0])
			memcpy(config.domain, reading.domain, sizeof(config.domain));
	}
	reading.any = true;
	reading.program = false;
	reading.broken = false;
	reading.first_pattern = pattern_count;
	reading.first_text = text_used;
	memset(reading.domain, 0, sizeof(reading.domain));
}

static void add_pattern(enum pattern_kind kind, const char *glob, size_t n)
{
	struct pattern *p = &patterns[pattern_count];
	char *copy = text + text_used;
	char *slash;

	if (pattern_count == PATTERNS_MAX || n >= TEXT_BYTES - text_used) {
		reading.broken = true;
		return;
	}
	memcpy(copy, glob, n);
	copy[n] = '\0';
	text_used += n + 1;
	slash = strrchr(copy, '/');
	p->glob = copy;
	/* What comes after the last slash is the name's pattern; '*' there may stand for a slash as
	 * well, but then for a file in a folder of such a name, which a may-match need not find: the
	 * exact match looks at every file that is opened for writing. */
	p->last = slash && !strchr(copy, '\\') ? slash + 1 : NULL;
	p->rule = reading.rule;
	p->kind = kind;
	pattern_count++;
}

/* Calls each(...) for the parts of a list "a, b , c". */
static void each_part(const char *list, void (*each)(void *arg, const char *part, size_t n),
		      void *arg)
{
	while (*list) {
		size_t n;

		list += strspn(list, ", \t\r\n");
		n = strcspn(list, ",\n");
		if (n == 0)
			break;
		while (strchr(" \t\r", list[n - 1]) && n > 1)
			n--;
		each(arg, list, n);
		list += n;
		list += strspn(list, " \t\r");
	}
}

static void take_program(void *arg, const char *part, size_t n)
{
	char glob[NAME_BYTES];

	(void)arg;
	if (n >= sizeof(glob))
		return;
	memcpy(glob, part, n);
	glob[n] = '\0';
	if (glob_match(glob, config.program))
		reading.program = true;
}

static void take_path(void *arg, const char *part, size_t n)
{
	(void)arg;
	add_pattern(PATTERN_PATH, part, n);
}

static void take_exclude(void *arg, const char *part, size_t n)
{
	(void)arg;
	add_pattern(PATTERN_EXCLUDE, part, n);
}

static int take_line(void *arg, const char *section, const char *name, const char *value)
{
	(void)arg;
	if (!reading.any || strcmp(section, reading.section) != 0) {
		finish_rule();
		if (strlen(section) >= sizeof(reading.section))
			return 0;
		strcpy(reading.section, section); /* NOLINT: length checked */
	}
	if (strcmp(name, "program") == 0)
		each_part(value, take_program, NULL);
	else if (strcmp(name, "path") == 0)
		each_part(value, take_path, NULL);
	else if (strcmp(name, "exclude") == 0)
		each_part(value, take_exclude, NULL);
	else if (strcmp(name, "domain") == 0 && strlen(value) < sizeof(reading.domain))
		strcpy(reading.domain, value); /* NOLINT: length checked */
	else
		reading.broken = true; /* what is not understood must not be half obeyed */
	return 1;
}

/*
 * What is needed once: the names of the files, then one file after the other, as it is and with its lists
 * broken. One place, used as far as they are long, since nearly all of what a start costs is page faults.
 */
static char scratch[FILES_MAX * NAME_BYTES + 2 * FILE_MAX_BYTES + 1] __attribute__((aligned(8)));

/* Somebody else who may write here may choose what is accelerated, and with it what is delayed. */
static bool trusted(const struct stat *st, bool by_user)
{
	return (st->st_uid == 0 || (by_user && st->st_uid == geteuid())) &&
	       !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/*
 * inih cuts lines that are longer than its buffer. Each part of a list goes to a line of its own (a
 * continuation, which begins with a blank, and in which inih knows no comment: they go, too). Writes at most
 * twice what it has read: n bytes may stand n behind `out`.
 */
static void break_lists(const char *in, char *out)
{
	bool comment = false, begin = true;

	for (; *in; in++) {
		if (*in == '\n') {
			comment = false;
			begin = true;
		} else if ((begin && (*in == ';' || *in == '#')) ||
			   (*in == ';' && (in[-1] == ' ' || in[-1] == '\t'))) {
			comment = true;
		} else if (*in != ' ' && *in != '\t') {
			begin = false;
		}
		if (comment)
			continue;
		if (*in == ',') {
			*out++ = '\n';
			*out++ = ' ';
		} else {
			*out++ = *in;
		}
	}
	*out = '\0';
}

/* A file with a line that is none is not obeyed at all. */
static void parse_rules(const char *lines, const char *name)
{
	const unsigned patterns_before = pattern_count;
	const size_t text_before = text_used;
	char domain_before[sizeof(config.domain)];
	int line;

	memcpy(domain_before, config.domain, sizeof(domain_before));
	memset(&reading, 0, sizeof(reading));
	reading.rule = rule_count;
	reading.first_pattern = pattern_count;
	reading.first_text = text_used;
	line = ini_parse_string(lines, take_line, NULL);
	finish_rule();
	if (line != 0) {
		pattern_count = patterns_before;
		text_used = text_before;
		memcpy(config.domain, domain_before, sizeof(domain_before));
		shim_log('4', "rules not read: a line is no section and no key", name);
		return;
	}
	rule_count = reading.rule;
	if (reading.fault)
		shim_log('4', "a rule was left out: unknown key, or too long", name);
}

/* room: the rest of scratch. */
static void read_rules(int folder, const char *name, bool by_user, char *room)
{
	struct stat st;
	long fd = sys_call4(SYS_openat, folder, name,
			    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	long n = -1;

	if (fd < 0)
		return;
	if (sys_call2(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && trusted(&st, by_user) &&
	    st.st_size <= FILE_MAX_BYTES)
		n = sys_call3(SYS_read, fd, room + st.st_size, st.st_size);
	(void)sys_call1(SYS_close, fd);
	if (n <= 0) {
		shim_log('4', "rules not read: empty, too long, or not root's alone to write",
			 name);
		return;
	}
	room[st.st_size + n] = '\0';
	break_lists(room + st.st_size, room);
	parse_rules(room, name);
}

/* Into its place among those before it. */
static void insert_name(char (*names)[NAME_BYTES], unsigned count, const char *name, size_t n)
{
	while (count > 0 && strcmp(names[count - 1], name) > 0) {
		memcpy(names[count], names[count - 1], NAME_BYTES);
		count--;
	}
	memcpy(names[count], name, n + 1);
}

static void read_folder(const char *path, bool by_user)
{
	char(*names)[NAME_BYTES] = (char(*)[NAME_BYTES])scratch;
	char *buffer = scratch + FILES_MAX * NAME_BYTES; /* until the names are all there */
	unsigned count = 0;
	struct stat st;
	long folder = sys_call4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	long n;

	if (folder < 0)
		return;
	if (sys_call2(SYS_fstat, folder, &st) < 0 || !trusted(&st, by_user))
		goto done;
	while ((n = sys_call3(SYS_getdents64, folder, buffer, DIRENTS_BYTES)) > 0) {
		for (long at = 0; at < n;) {
			const struct linux_dirent64 *e = (const void *)(buffer + at);
			size_t length = strlen(e->d_name);

			at += e->d_reclen;
			if (length < 5 || length >= NAME_BYTES || count == FILES_MAX ||
			    e->d_name[0] == '.' || strcmp(e->d_name + length - 4, ".ini") != 0)
				continue;
			insert_name(names, count++, e->d_name, length);
		}
	}
	for (unsigned i = 0; i < count; i++)
		read_rules((int)folder, names[i], by_user, names[count]);
done:
	(void)sys_call1(SYS_close, folder);
}

static bool read_program(void)
{
	char exe[SHIM_PATH_MAX];
	long n = sys_call3(SYS_readlink, "/proc/self/exe", exe, sizeof(exe) - 1);
	const char *name;

	if (n <= 0)
		return false;
	exe[n] = '\0';
	name = strrchr(exe, '/');
	name = name ? name + 1 : exe;
	if (strlen(name) >= sizeof(config.program))
		return false;
	strcpy(config.program, name); /* NOLINT: length checked */
	return true;
}

/* The systemd unit: last part of the cgroup's path, where it is a service. */
static void unit_domain(void)
{
	char buffer[1024];
	long fd = sys_call4(SYS_openat, AT_FDCWD, "/proc/self/cgroup", O_RDONLY | O_CLOEXEC, 0);
	long n;
	char *end, *name;

	if (fd < 0)
		return;
	n = sys_call3(SYS_read, fd, buffer, sizeof(buffer) - 1);
	(void)sys_call1(SYS_close, fd);
	if (n <= 0)
		return;
	buffer[n] = '\0';
	end = strstr(buffer, ".service\n");
	if (!end)
		return;
	*end = '\0';
	name = strrchr(buffer, '/');
	if (name && strlen(name + 1) < sizeof(config.domain))
		strcpy(config.domain, name + 1); /* NOLINT: length checked */
}

static bool read_names(void)
{
	const char *socket = secure_getenv("PMEMLOGD_SOCKET");
	const char *domain = secure_getenv("PMEMLOGD_DOMAIN");
	char *slash;

	if (!socket || !*socket)
		socket = DEFAULT_SOCKET;
	if (strlen(socket) >= sizeof(config.socket) || socket[0] != '/')
		return false;
	strcpy(config.socket, socket); /* NOLINT: length checked */
	strcpy(config.folder, socket); /* NOLINT: length checked */
	slash = strrchr(config.folder, '/');
	*slash = '\0';
	if (domain && *domain && strlen(domain) < sizeof(config.domain)) {
		memset(config.domain, 0, sizeof(config.domain));
		strcpy(config.domain, domain); /* NOLINT: length checked */
	}
	if (!config.domain[0])
		unit_domain();
	if (!config.domain[0])
		strcpy(config.domain, "default"); /* NOLINT: fits */
	return true;
}

bool config_load(void)
{
	const char *folder = secure_getenv("PMEMLOGD_PRELOAD_CONFIG");
	bool by_user = folder && *folder;

	if (!by_user)
		folder = RULES_FOLDER;
	/* The cheap question first: most programs on a machine without rules end here. */
	if (sys_call2(SYS_access, folder, R_OK) < 0 || !read_program())
		return false;
	read_folder(folder, by_user);
	return pattern_count > 0 && read_names();
}

static bool rule_excludes(uint32_t rule, const char *path)
{
	for (unsigned i = 0; i < pattern_count; i++)
		if (patterns[i].rule == rule && patterns[i].kind == PATTERN_EXCLUDE &&
		    glob_match(patterns[i].glob, path))
			return true;
	return false;
}

bool config_match(const char *path)
{
	for (unsigned i = 0; i < pattern_count; i++)
		if (patterns[i].kind == PATTERN_PATH && glob_match(patterns[i].glob, path) &&
		    !rule_excludes(patterns[i].rule, path))
			return true;
	return false;
}

bool config_may_match(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	for (unsigned i = 0; i < pattern_count; i++) {
		if (patterns[i].kind != PATTERN_PATH)
			continue;
		if (!patterns[i].last || glob_match(patterns[i].last, name))
			return true;
	}
	return false;
}
