/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * One way to say something, for all of the daemon: journal fields under systemd, `<priority>text` on
 * stderr elsewhere. Text says what happened, to what, and what to do next. Thread-safe; never fails;
 * errno is kept.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <syslog.h>

/* Events that a journal reader or an alert may look for. Never used again for another event. */
#define LOG_ID_READY	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c01"
#define LOG_ID_STOPPING	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c02"
#define LOG_ID_NOT_DURABLE "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c03"
#define LOG_ID_QUARANTINED "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c04"
#define LOG_ID_HELD	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c05"
#define LOG_ID_DEGRADED	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c06"
#define LOG_ID_BYPASS	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c07"
#define LOG_ID_RECOVERED   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c08"
#define LOG_ID_RELOADED	   "3f0d6c0e5f7c4a0e8f3f6d5d2a1b7c09"

/* Chooses journal or stderr; level: least important priority that is written (LOG_ERR..LOG_DEBUG).
 * Without a call: stderr, LOG_NOTICE. Once, before the first thread. */
void log_init(int level);

/* Changes the level; any thread. */
void log_set_level(int level);

/* True if a message of that priority would be written: for texts that are costly to make. */
bool log_wanted(int priority);

/* priority: LOG_ERR..LOG_DEBUG of syslog.h. domain: name for the field PMEMLOGD_DOMAIN= and the text,
 * or NULL. */
void log_msg(int priority, const char *domain, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with an id of the list above and the path of the file that it is about (both may be NULL);
 * the path is made printable. */
void log_event(int priority, const char *id, const char *domain, const char *file,
	       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* "error", "warning", "notice", "info", "debug" to a priority, or -1. */
int log_level_of(const char *name);
const char *log_level_name(int level);

/* Copies text that came from outside and turns what is not printable ASCII or UTF-8 into '?': always
 * terminated. */
void log_printable(char *dst, size_t n, const char *src);
