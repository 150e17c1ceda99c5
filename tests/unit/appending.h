/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A small lane, so that its end is near, and short ways to append to it. Each file that includes it has its own. */

#include <sys/uio.h>

#include "base/sys.h"
#include "env.h"
#include "pool/append.h"

#define RING 65536u

static struct env e;

/* Around each test. */
static inline int set_up(void **state)
{
	(void)state;
	env_make(&e, RING);
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	env_free(&e);
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* n zeros at that offset, with the room reserved before (0: none). Returns what append_record does. */
static inline int append(struct ctl_file *f, uint16_t type, uint64_t offset, uint32_t n,
			 uint64_t reserved)
{
	static uint8_t bytes[RING];
	struct iovec iov = { bytes, n };
	struct append_request r = { .type = type,
				    .offset = offset,
				    .iov = &iov,
				    .iovcnt = 1,
				    .length = n,
				    .reserved = reserved };

	return append_record(&e.s, &e.who, f, 9, &r, NULL);
}
