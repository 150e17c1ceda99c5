/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/facts.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"

__attribute__((format(printf, 4, 0))) static bool line_of(const struct facts *f, char *buf,
							  size_t n, const char *format, va_list ap)
{
	char path[CTL_PATH_MAX], whole[CTL_PATH_MAX];
	cleanup_fclose FILE *in = NULL;

	(void)vsnprintf(path, sizeof(path), format, ap);
	(void)snprintf(whole, sizeof(whole), "%.400s%.600s", f->root, path);
	buf[0] = '\0';
	in = fopen(whole, "re");
	if (!in)
		return false;
	if (!fgets(buf, (int)n, in))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

bool facts_line(const struct facts *f, char *buf, size_t n, const char *format, ...)
{
	va_list ap;
	bool r;

	va_start(ap, format);
	r = line_of(f, buf, n, format, ap);
	va_end(ap);
	return r;
}

bool facts_number(const struct facts *f, uint64_t *ret, const char *format, ...)
{
	char text[64], *end;
	va_list ap;
	bool r;

	va_start(ap, format);
	r = line_of(f, text, sizeof(text), format, ap);
	va_end(ap);
	*ret = strtoull(text, &end, 0);
	return r && end != text;
}

bool facts_link(const struct facts *f, char *buf, size_t n, const char *path)
{
	char whole[CTL_PATH_MAX], target[CTL_PATH_MAX];
	const char *slash;
	ssize_t got;

	(void)snprintf(whole, sizeof(whole), "%.400s%.600s", f->root, path);
	got = readlink(whole, target, sizeof(target) - 1);
	buf[0] = '\0';
	if (got <= 0)
		return false;
	target[got] = '\0';
	slash = strrchr(target, '/');
	(void)snprintf(buf, n, "%s", slash ? slash + 1 : target);
	return true;
}

bool fact_option(const struct fact_mount *m, const char *option)
{
	char whole[128];

	(void)snprintf(whole, sizeof(whole), ",%s,", option);
	return strstr(m->options, whole) != NULL;
}

bool fact_list_has(const char *list, unsigned n)
{
	while (*list) {
		unsigned from, to;
		int used = 0;

		if (sscanf(list, "%u-%u%n", &from, &to, &used) < 2) {
			if (sscanf(list, "%u%n", &from, &used) < 1)
				return false;
			to = from;
		}
		if (n >= from && n <= to)
			return true;
		list += used;
		list += *list == ',';
	}
	return false;
}

/* mountinfo writes blanks and the like as \040. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && isdigit((unsigned char)s[1]) && isdigit((unsigned char)s[2]) &&
		    isdigit((unsigned char)s[3])) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

static bool within(const char *path, const char *point)
{
	size_t n = strlen(point);

	if (strcmp(point, "/") == 0)
		return true;
	return strncmp(path, point, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* One line of mountinfo (proc(5)); false: it is none. */
static bool parse_mount(const char *line, struct fact_mount *m)
{
	const char *dash = strstr(line, " - ");
	char options[240], super[240];

	memset(m, 0, sizeof(*m));
	if (!dash || sscanf(line, "%*d %*d %u:%u %*s %255s %239s", &m->major, &m->minor, m->point,
			    options) != 4)
		return false;
	if (sscanf(dash + 3, "%31s %127s %239s", m->type, m->source, super) != 3)
		return false;
	unescape(m->point);
	(void)snprintf(m->options, sizeof(m->options), ",%s,%s,", options, super);
	m->found = true;
	return true;
}

void facts_mount_of(const struct facts *f, const char *path, struct fact_mount *ret)
{
	char whole[CTL_PATH_MAX], *line = NULL;
	size_t room = 0;
	struct fact_mount m;
	FILE *in;

	memset(ret, 0, sizeof(*ret));
	/* init's: the daemon and the databases are in its namespace, sudo's caller may not be */
	(void)snprintf(whole, sizeof(whole), "%s/proc/1/mountinfo", f->root);
	in = fopen(whole, "re");
	if (!in) {
		(void)snprintf(whole, sizeof(whole), "%s/proc/self/mountinfo", f->root);
		in = fopen(whole, "re");
	}
	while (in && getline(&line, &room, in) > 0)
		/* of two on one point the later one covers the earlier */
		if (parse_mount(line, &m) && within(path, m.point) &&
		    strlen(m.point) >= strlen(ret->point))
			*ret = m;
	free(line);
	if (in)
		(void)fclose(in);
}

/* pmem0p1 is a part of pmem0; the kernel gives a partition a file of that name. */
static void find_device(struct facts *f)
{
	char path[CTL_PATH_MAX], number[16];

	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", f->pool.major, f->pool.minor);
	if (!f->pool.found || !facts_link(f, f->disk, sizeof(f->disk), path))
		return;
	(void)snprintf(f->whole, sizeof(f->whole), "%s", f->disk);
	if (facts_line(f, number, sizeof(number), "%s/partition", path)) {
		char *p = strrchr(f->whole, 'p');

		if (p && p > f->whole && isdigit((unsigned char)p[-1]))
			*p = '\0';
	}
	(void)snprintf(f->nd, sizeof(f->nd), "/sys/block/%s/device", f->whole);
	if (strncmp(f->whole, "pmem", 4) != 0 ||
	    !facts_link(f, f->nd_name, sizeof(f->nd_name), f->nd))
		f->nd_name[0] = '\0';
	(void)snprintf(f->region, sizeof(f->region), "%.480s/..", f->nd);
}

void facts_gather(struct facts *f, const char *root, const struct config *config)
{
	uint64_t pid;
	struct process *p = malloc(sizeof(*p));

	memset(f, 0, sizeof(*f));
	f->root = root;
	f->config = config;
	facts_mount_of(f, config->pool, &f->pool);
	find_device(f);
	/* whoever had the pool last may have ended, and its number may be another's now */
	if (p && facts_number(f, &pid, "%s/pool.pid", config->state_dir) && pid < INT32_MAX &&
	    process_read(p, root, (int)pid) == 0 && strcmp(p->name, "pmemlogd") == 0)
		f->daemon = (int)pid;
	free(p);
}
