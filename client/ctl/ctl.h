/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* pmemlogctl: what its verbs share. One thread; errors are told on stderr where they happen. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/wire.h"
#include "daemon/config.h"

#define CTL_PATH_MAX 1024 /* bytes of a path below a root; longer ones are cut off, and not found */

enum ctl_exit {
	CTL_GOOD = 0,
	CTL_REFUSED = 1, /* degraded or refused */
	CTL_UNREACHABLE = 3,
	CTL_USAGE = 64,
	CTL_CONFIG = 78,
};

struct ctl {
	const char *config_path; /* NULL: the default one, which may be missing */
	const char *socket;	 /* NULL: the configuration's */
	struct config *config;	 /* ctl_config */
};

struct verb {
	const char *name;      /* one or two words */
	const char *arguments; /* for the usage line */
	const char *summary;   /* one line */
	const char *help;
	int (*run)(struct ctl *c, const struct verb *v, int argc, char **argv);
};

extern const struct verb verb_pool_create, verb_pool_check, verb_pool_verify, verb_status,
	verb_flush, verb_gate, verb_recover, verb_dump, verb_report, verb_enable, verb_disable,
	verb_check, verb_doctor;
extern const struct verb verb_log_list, verb_log_create, verb_log_append, verb_log_cat,
	verb_log_tail, verb_log_dump, verb_log_trim, verb_log_rm, verb_log_verify;

/* ---- options.c */

/* A long option of a verb, or a short one where its name is one letter: with a value if `value` is set. Ends with
 * name NULL. */
struct ctl_option {
	const char *name;
	bool *flag;
	const char **value;
};

/*
 * Takes options (the verb's and -c, --config, --socket, --help) out of argv, wherever they stand; `--`
 * ends them. What is left, min to max words, is in *ret_words (argv itself, *ret_n). Returns -1 to go
 * on, or the exit code.
 */
int ctl_parse(struct ctl *c, const struct verb *v, int argc, char **argv,
	      const struct ctl_option *options, int min, int max, char ***ret_words, int *ret_n);

/* An option that every verb takes, at argv[i]: how many words it is (1, 2), 0 (none of them), or -1
 * (its value is missing; told). */
int ctl_common_option(struct ctl *c, int argc, char **argv, int i);

/* The configuration, loaded once; NULL: told, exit with CTL_CONFIG. */
const struct config *ctl_config(struct ctl *c);

/* ---- say.c */

/* "pmemlogctl: ..." on stderr; returns code. */
int ctl_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes for people: 12 B, 3.4 MiB. buf has n bytes; returns buf. */
char *ctl_bytes(char *buf, size_t n, uint64_t bytes);
/* The same for nanoseconds: 12 ms, 3.4 s, 5 min. */
char *ctl_duration(char *buf, size_t n, uint64_t ns);

/* Name of a user, or his number. */
char *ctl_user(char *buf, size_t n, uint32_t uid);

/*
 * Asks for `name` (noun: what it is: "domain's name") to be typed (the prompt only if standard input is a terminal) unless yes equals it.
 * False: told, nothing may be done.
 */
bool ctl_confirm(const char *noun, const char *name, const char *yes, const char *what);

/* ---- pool_force.c */

/*
 * Before a pool is given up: tells on stderr whose records lie in it (domain, user, bytes, files), and where
 * there are any, or that cannot be told, asks for the path as ctl_confirm does. False: told, nothing may be
 * done.
 */
bool ctl_confirm_force(const struct config *config, const char *yes);

/* ---- connect.c */

/* An answer of the daemon. */
struct answer {
	int status; /* 0 or a negative errno */
	struct wire_reply reply;
	char *document; /* JSON text, owned by the caller; NULL: none came */
};

/* Called about every 200 ms while the daemon works on a request. */
struct wait_hook {
	void (*tick)(void *arg);
	void *arg;
};

/* The daemon says at once that it has a request, even where the answer takes long: who is silent for so
 * long is stopped or hangs. */
#define CTL_PATIENCE_MS 10000

/*
 * One request to the daemon and its final reply. fd: a descriptor to pass, or -1. patience_ms: until it
 * says anything at all; 0: no limit. From then on there is none: recovery takes as long as the disk
 * does. hook may be NULL. Returns 0, or a negative errno: the daemon cannot be reached, is silent
 * (-ETIMEDOUT) or went away meanwhile (nothing told).
 */
int ctl_ask(const char *socket_path, uint16_t type, const void *body, size_t n, int fd,
	    int patience_ms, const struct wait_hook *hook, struct answer *ret);

/* A connection to the daemon, waited for so long while its queue is full (0: no limit): 0 or a negative errno. */
int ctl_connect(const char *path, int patience_ms, int *ret_fd);

/*
 * One packet, waited for, into `bytes` bytes at packet (a struct wire_header and more), and the descriptor that came with
 * it, the caller's; -1: none. 0; -ECONNRESET: the daemon went away; -EPROTO: no packet of pmemlogd's; another
 * negative errno.
 */
int ctl_receive(int s, void *packet, size_t bytes, int *ret_fd);

/* What a memory file of the daemon's holds, owned by the caller; NULL: it could not be read. */
char *ctl_document(int fd);

/* A struct wire_domain request for `domain`; -ENAMETOOLONG when it does not fit. */
int ctl_ask_domain(const char *socket_path, uint16_t type, const char *domain, int patience_ms,
		   const struct wait_hook *hook, struct answer *ret);

/* The daemon's socket by option or configuration; NULL: told, exit with CTL_CONFIG. */
const char *ctl_socket(struct ctl *c);

/* "cannot be reached", with what to do; returns CTL_UNREACHABLE. */
int ctl_unreachable(const char *socket_path, int error);

/* Prints the text of an answer (stdout if good, stderr otherwise); returns its exit code. */
int ctl_report(const struct answer *a);
