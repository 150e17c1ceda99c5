/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * A pool as a power cut leaves it: two domains, files on a real file system, records of every kind, written
 * through the product's own calls; and what recovery must make of it.
 */

#include "tests/recover/world.h"

#define SCENE_RING    65536u
#define SCENE_FILES   4 /* 0, 1, 2: domain "one" (2 is unlinked); 3: domain "two" */
#define SCENE_BYTES   16384u
#define SCENE_RECORDS 16

enum scene_beat {
	BEAT_HEAD,   /* the heartbeat has seen all records */
	BEAT_BEFORE, /* all but the newest */
	BEAT_OLD,    /* none of the live ones: the daemon was dead */
	BEAT_KINDS,
};

enum scene_end {
	END_WRITE,  /* the lane ends with a WRITE that follows others */
	END_SINGLE, /* it holds one record alone */
	END_PAD,    /* the newest record has a PAD before it */
	END_FENCE,
	END_UNLINK,
	END_EMPTY, /* no live record at all */
	END_KINDS,
};

struct scene_record {
	uint16_t type;
	uint64_t position;
	uint32_t length;
};

struct scene_file {
	char path[256];
	struct pool_file entry;
	uint32_t index;
	bool gone;
	uint8_t before[SCENE_BYTES];  /* in the file, durable */
	uint8_t want[SCENE_BYTES];    /* with every acknowledged record */
	uint8_t without[SCENE_BYTES]; /* with all but the newest of "one" */
};

struct scene {
	struct world *w; /* mount, pool and state folder */
	struct scene_file files[SCENE_FILES];
	struct pool_domain domains[2];
	uint32_t index[2];
	struct scene_record records[SCENE_RECORDS]; /* live ones of "one", PAD included */
	unsigned n_records;
	uint64_t tail, head;
};

/* Makes it from nothing; the pool is closed on return. */
void scene_make(struct scene *s, enum scene_beat beat, enum scene_end end);

/* Bytes of a file as they are now equal those. */
bool scene_holds(const struct scene_file *f, const uint8_t *bytes);

/* Immutable attributes off, files away. */
void scene_clear(struct scene *s);
