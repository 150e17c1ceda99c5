/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A lane and its control file in memory, with this process as a session. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/session.h"

#define ENV_INCARNATION UINT64_C(0x1122334455667788)

struct env {
	struct session s;
	struct caller who;
	int lane_fd;
};

/* A lane of ring_size bytes, open, this process in slot 1. Fails the test when it cannot. */
void env_make(struct env *e, uint64_t ring_size);
void env_free(struct env *e);

/* A second open description of the control file, mapped: another process's view. */
struct control env_other(const struct env *e);

/* This thread's caller. */
struct caller env_caller(void);

/* Registers entry i with id i + 1. */
struct ctl_file *env_file(struct env *e, unsigned i);

/* Appends a WRITE of n bytes whose bytes depend on its position in the stream of writes. Returns what
 * append_record does. */
int env_write(struct env *e, struct ctl_file *f, uint64_t offset, uint32_t n,
	      uint64_t *ret_position);
uint8_t env_byte(uint64_t offset, uint32_t i);

/* Takes [tail, ...) away as the destager would: lane tail, then published. */
void env_trim(struct env *e, uint64_t tail, uint32_t chain);

/* Forks a child that runs body(arg) and then waits to be killed; returns when body has run. */
int env_fork(void (*body)(void *), void *arg);
/* SIGKILL to it, and wait until it is gone. */
void env_kill(int pid);

uint64_t env_ms(void);
void env_sleep_ms(unsigned ms);
