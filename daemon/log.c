/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/log.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <systemd/sd-journal.h>

#include "base/atomic.h"
#include "base/overflow.h"

#define LOG_TEXT 1024u /* bytes of a message; longer ones are cut */
#define LOG_PATH 512u

static const struct {
	const char *name;
	int level;
} levels[] = {
	{ "error", LOG_ERR }, { "warning", LOG_WARNING }, { "notice", LOG_NOTICE },
	{ "info", LOG_INFO }, { "debug", LOG_DEBUG },
};

static int log_level = LOG_NOTICE; /* relaxed: a message more or less at a change */
static bool log_to_journal;	   /* constant after log_init */

/* systemd tells the device and inode of the stream that it gave us: true if stderr still is that one. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;
	char end;

	if (!stream || sscanf(stream, "%llu:%llu%c", &device, &inode, &end) != 2)
		return false;
	if (fstat(STDERR_FILENO, &st) < 0)
		return false;
	return st.st_dev == device && st.st_ino == inode;
}

void log_init(int level)
{
	log_set_level(level);
	log_to_journal = stderr_is_journal();
}

void log_set_level(int level)
{
	atomic_store_relaxed(&log_level, level);
}

bool log_wanted(int priority)
{
	return priority <= atomic_load_relaxed(&log_level);
}

int log_level_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (strcmp(levels[i].name, name) == 0)
			return levels[i].level;
	return -1;
}

const char *log_level_name(int level)
{
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (levels[i].level == level)
			return levels[i].name;
	return "error";
}

void log_printable(char *dst, size_t n, const char *src)
{
	size_t i = 0;

	if (n == 0)
		return;
	for (; src && src[i] && i + 1 < n; i++) {
		unsigned char c = (unsigned char)src[i];

		/* bytes from 0x80 on are let through: paths may be UTF-8, and no terminal acts on
		 * them but on C1 controls, which need a 0xc2 before them */
		dst[i] = c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)src[i + 1] < 0xa0)
				 ? '?'
				 : (char)c;
	}
	dst[i] = '\0';
}

/* noinline: only one of the two writers is on the stack. */
struct log_fields {
	char message[LOG_TEXT + 16];
	char priority[16];
	char id[64];
	char domain[96];
	char file[LOG_PATH + 16];
	struct iovec iov[5];
	int n;
};

static void add_field(struct log_fields *f, char *buf, size_t size, const char *name,
		      const char *value)
{
	int length = snprintf(buf, size, "%s=%s", name, value);

	if (length < 0)
		return;
	f->iov[f->n].iov_base = buf;
	f->iov[f->n].iov_len = min_of((size_t)length, size - 1);
	f->n++;
}

static __attribute__((noinline)) void log_journal(int priority, const char *id, const char *domain,
						  const char *file, const char *text)
{
	const char digit[2] = { (char)('0' + (priority & 7)), '\0' };
	struct log_fields f;

	f.n = 0;
	add_field(&f, f.message, sizeof(f.message), "MESSAGE", text);
	add_field(&f, f.priority, sizeof(f.priority), "PRIORITY", digit);
	if (id)
		add_field(&f, f.id, sizeof(f.id), "MESSAGE_ID", id);
	if (domain)
		add_field(&f, f.domain, sizeof(f.domain), "PMEMLOGD_DOMAIN", domain);
	if (file)
		add_field(&f, f.file, sizeof(f.file), "PMEMLOGD_FILE", file);
	(void)sd_journal_sendv(f.iov, f.n);
}

/* One write for one line: lines of threads do not mix. */
static __attribute__((noinline)) void log_stderr(int priority, const char *text)
{
	char line[LOG_TEXT + 8];
	int n = snprintf(line, sizeof(line), "<%d>%s\n", priority & 7, text);

	if (n > 0)
		(void)!write(STDERR_FILENO, line, min_of((size_t)n, sizeof(line) - 1));
}

static void log_v(int priority, const char *id, const char *domain, const char *file,
		  const char *format, va_list ap) __attribute__((format(printf, 5, 0)));

static void log_v(int priority, const char *id, const char *domain, const char *file,
		  const char *format, va_list ap)
{
	int keep = errno;
	char path[LOG_PATH];
	char text[LOG_TEXT];
	int at = 0;

	if (!log_wanted(priority))
		return;
	if (file)
		log_printable(path, sizeof(path), file);
	if (domain && *domain)
		at = snprintf(text, sizeof(text), "domain %s: ", domain);
	if (at < 0 || (size_t)at >= sizeof(text))
		at = 0;
	errno = keep; /* for %m */
	(void)vsnprintf(text + at, sizeof(text) - (size_t)at, format, ap);
	if (log_to_journal)
		log_journal(priority, id, domain, file ? path : NULL, text);
	else
		log_stderr(priority, text);
	errno = keep;
}

void log_msg(int priority, const char *domain, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_v(priority, NULL, domain, NULL, format, ap);
	va_end(ap);
}

void log_event(int priority, const char *id, const char *domain, const char *file,
	       const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_v(priority, id, domain, file, format, ap);
	va_end(ap);
}
