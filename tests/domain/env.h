/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A pool, a folder of files on a real file system, and the daemon's domains in this process. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client.h"
#include "daemon/domain/domain.h"
#include "faults.h"

#define ENV_RING    (UINT64_C(1) << 20)	    /* 1 MiB: a quarter is reached soon */
#define ENV_LONG_NS UINT64_C(3600000000000) /* a destage age that no test waits for */

struct env {
	char dir[256];
	struct config config;
	struct pool *pool;
	struct domain_set *set;
	struct client a, b; /* one file each */
	char file[2][300];
	uint64_t ino[2];
	int fd[2]; /* our own look at the files */
};

/* One answered request. */
struct answer {
	int status;
	uint32_t exit_code, lane, entry, state;
	uint64_t id, incarnation;
	int control_fd, lane_fd;
	char text[WIRE_TEXT];
};

int env_setup(void **state);
int env_teardown(void **state);
void env_daemon_start(struct env *e);
void env_daemon_stop(struct env *e);

struct answer env_ask(struct env *e, enum domain_request_kind kind, const char *domain, int fd,
		      uint32_t mode);
/* HELLO, attach, open, register, bind: the client's file is file[n]. Returns REGISTER's answer. */
struct answer env_join(struct env *e, struct client *c, unsigned n, const char *domain);
int64_t env_write(struct client *c, uint64_t offset, uint64_t n, uint8_t byte);
int64_t env_op(struct client *c, enum client_op op);

/* Fields of the status document. */
int64_t env_number(struct env *e, const char *domain, const char *key);
void env_string(struct env *e, const char *domain, const char *key, char *buf, size_t n);
/* Of the file with that id; -1, "": it is not there. */
int64_t env_file_number(struct env *e, const char *domain, uint64_t id, const char *key);
void env_file_string(struct env *e, const char *domain, uint64_t id, const char *key, char *buf,
		     size_t n);

/* Waits at most ms for the expression. */
#define env_wait(ms, expression)                                                       \
	do {                                                                           \
		uint64_t end_ = env_ms() + (ms);                                       \
		while (!(expression) && env_ms() < end_)                               \
			env_sleep_ms(10);                                              \
		if (!(expression))                                                     \
			fail_msg("not within %u ms: %s", (unsigned)(ms), #expression); \
	} while (0)
uint64_t env_ms(void);
void env_sleep_ms(unsigned ms);

bool env_state_is(struct env *e, const char *domain, const char *state);
bool env_file_is(struct env *e, const char *domain, uint64_t id, const char *state);
bool env_marked(struct env *e, unsigned n);
/* Entries of the catalog for files. */
unsigned env_catalog_files(struct env *e);
bool env_control_there(struct env *e, uint32_t lane);
/* The byte at an offset as a reader sees it. */
int env_byte(struct env *e, unsigned n, uint64_t offset);
/* What a kernel does that drops dirty pages after an error: older bytes in the page cache. */
void env_lose_pages(struct env *e, unsigned n, uint64_t offset, uint64_t bytes);
