/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Persistent memory as a power cut sees it. The product stores through pool_ops; this filling keeps,
 * beside the memory that the program sees (work), what is certainly durable (safe), and for each line
 * its content at the moment it was last copied or flushed (flown), durable at that thread's next drain.
 * At a cut each 8-byte word may be any of the three, whichever it likes.
 */

#include <stddef.h>
#include <stdint.h>

#include "abi/lane.h"
#include "pool/ops.h"
#include "tests/crash/image.h"

#define MEDIUM_RING  ((uint64_t)LANE_RING_MIN)
#define MEDIUM_BYTES (LANE_HEADER_BYTES + LANE_RING_MIN)
#define MEDIUM_LINES (MEDIUM_BYTES / LANE_ALIGN)

struct medium {
	uint8_t work[MEDIUM_BYTES] __attribute__((aligned(64)));
	uint8_t safe[MEDIUM_BYTES] __attribute__((aligned(64)));
	uint8_t flown[MEDIUM_BYTES] __attribute__((aligned(64)));
	/* always equal to safe, except while an image is laid over it */
	uint8_t image[MEDIUM_BYTES] __attribute__((aligned(64)));
	uint8_t pending[MEDIUM_LINES]; /* 0, or 1 + thread whose drain makes `flown` safe */
	uint8_t listed[MEDIUM_LINES];
	uint16_t list[MEDIUM_LINES]; /* lines that are pending or differ from safe */
	unsigned count;
	unsigned thread;  /* who stores now */
	uint64_t version; /* raised at each change */
};

extern const struct pool_ops medium_ops;
extern const char *const image_names[IMAGE_KINDS];

/* Makes m, all zero, the one that medium_ops stores to; after_store is called after each step. */
void medium_use(struct medium *m, void (*after_store)(void));
void medium_clear(struct medium *m);

/* Lays an image over m->image; which: the line for ONE_IN and ONE_OUT, below m->count. */
void medium_image(struct medium *m, enum image_kind kind, unsigned which, struct rng *r);
/* Takes it away again. */
void medium_restore(struct medium *m);
