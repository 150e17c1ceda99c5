/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A pool directory of the test's own on tmpfs, as any user. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "pool/dir/catalog.h"

extern char base[128], pool_dir[160], state_dir[160], pool_file[192];
extern struct pool_error error;

/* Fixtures: a new pool, all gone again. */
int setup(void **state);
int teardown(void **state);

/* system() of a formatted command; fails the test unless it succeeds. */
void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct pool *must_open(void);
struct pool_domain make_lane(struct pool *p, const char *name);

/* One valid record into the lane, so that it holds something. */
void make_live(struct pool *p, const struct pool_domain *d);

/* Opening is refused with that errno, with the word in its text, and nothing on the disk is another byte. */
void refused(int expected, const char *word);

/* Bytes of the file `pool`: written, one bit flipped. */
void poke(off_t offset, const void *bytes, size_t n);
void flip(off_t offset);
