/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

int ctl_fail(int code, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)fprintf(stderr, "pmemlogctl: ");
	(void)vfprintf(stderr, format, ap);
	(void)fprintf(stderr, "\n");
	va_end(ap);
	return code;
}

char *ctl_bytes(char *buf, size_t n, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u < 4) {
		v /= 1024;
		u++;
	}
	(void)snprintf(buf, n, v < 10 && u > 0 ? "%.1f %s" : "%.0f %s", v, units[u]);
	return buf;
}

char *ctl_duration(char *buf, size_t n, uint64_t ns)
{
	double s = (double)ns / 1e9;

	if (s < 1)
		(void)snprintf(buf, n, "%.0f ms", s * 1e3);
	else if (s < 120)
		(void)snprintf(buf, n, "%.1f s", s);
	else if (s < 7200)
		(void)snprintf(buf, n, "%.0f min", s / 60);
	else
		(void)snprintf(buf, n, "%.1f h", s / 3600);
	return buf;
}

char *ctl_user(char *buf, size_t n, uint32_t uid)
{
	const struct passwd *p = getpwuid(uid);

	if (p)
		(void)snprintf(buf, n, "%s", p->pw_name);
	else
		(void)snprintf(buf, n, "%" PRIu32, uid);
	return buf;
}

bool ctl_confirm(const char *noun, const char *name, const char *yes, const char *what)
{
	char line[256];

	if (yes) {
		if (strcmp(yes, name) == 0)
			return true;
		ctl_fail(0, "--yes=%s is not the %s, \"%s\": nothing was done", yes, noun, name);
		return false;
	}
	if (isatty(STDIN_FILENO)) {
		(void)fprintf(stderr, "%s\nType the %s, \"%s\", to go on: ", what, noun, name);
		(void)fflush(stderr);
	}
	if (!fgets(line, sizeof(line), stdin))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, name) == 0)
		return true;
	ctl_fail(0, "this needs the %s as confirmation, typed or by --yes=%s: nothing was done",
		 noun, name);
	return false;
}
