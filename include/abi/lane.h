/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Lane format, version 1: what lies in persistent memory. Little-endian. Change this only together
 * with pmemlogd-lane(5); tests/abi compares the two, offset by offset.
 *
 *     0        4096                                                   4096 + ring_size
 *     +--------+----------+--------+--------+---------+---------------+
 *     | header |  free    | record | record | record  |  free         |
 *     +--------+----------+--------+--------+---------+---------------+
 *                         ^ tail % ring_size          ^ head % ring_size
 *
 * A position is a byte offset in the endless stream of the lane, never reused; its place in the
 * ring is position % ring_size. All positions are multiples of 64.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_MAGIC	  "PMLANE01"
#define LANE_HEADER_BYTES 4096u	 /* one page: the header never shares one with the ring */
#define LANE_ALIGN	  64u	 /* a cache line: what one persist makes durable */
#define LANE_COPY_OFFSET  2048u	 /* second copy of bytes 0..63, in the other half of the page */
#define LANE_RING_MIN	  65536u /* picked: room for a few files' reserve and records */
#define LANE_RING_MAX	  ((UINT64_C(1) << 32) - LANE_ALIGN)

/* Identity: bytes 0..63, once at 0 and once at LANE_COPY_OFFSET. */
struct lane_identity {
	uint8_t magic[8];   /* LANE_MAGIC */
	uint32_t lane;	    /* lane number */
	uint32_t crc;	    /* CRC32C of these 64 bytes with this field zero */
	uint64_t ring_size; /* bytes; a multiple of LANE_ALIGN, LANE_RING_MIN..LANE_RING_MAX */
	uint64_t
		incarnation; /* random; new at allocation, after recovery, after the last session */
	uint8_t reserved[32]; /* zero */
};

/* Tail: one cache line. It moves in three persists: a line may tear between its 8-byte words, and the
 * two chains share one (lane_tail_write). */
struct lane_tail {
	uint64_t tail[2]; /* position of the oldest live record, twice */
	uint32_t chain
		[2]; /* CRC field of the record before it, twice; 0: none in this incarnation */
	uint8_t reserved[40]; /* zero */
};

/* Heartbeat: one cache line, written by the daemon alone. */
struct lane_beat {
	uint64_t time_ns;     /* CLOCK_REALTIME; 0: never */
	uint64_t head;	      /* a head that was durable at that time */
	uint64_t time_check;  /* ~time_ns; 0: none (an earlier version's) */
	uint8_t reserved[40]; /* zero */
};

struct lane_header {
	struct lane_identity identity;
	struct lane_tail tail;
	struct lane_beat beat;
	uint8_t reserved0[LANE_COPY_OFFSET - 192];
	struct lane_identity copy;
	uint8_t reserved1[LANE_HEADER_BYTES - LANE_COPY_OFFSET - 64];
};

enum record_type {
	RECORD_WRITE = 1,  /* payload at `offset` of the file */
	RECORD_PAD = 2,	   /* nothing, up to the ring's end; the CRC covers the header only */
	RECORD_FENCE = 3,  /* the file's records below position `offset` are durable in it */
	RECORD_TOUCH = 4,  /* the file's metadata changed through us */
	RECORD_UNLINK = 5, /* the file's last name is about to go */
	RECORD_LINES = 6,  /* changed 64-byte lines of a rewritten block */
};

#define RECORD_INLINE 1u /* flag: the bytes are in the page cache of the file */

struct record_header {
	uint32_t crc;	      /* CRC32C of bytes 4..63 and the payload */
	uint16_t type;	      /* enum record_type */
	uint16_t flags;	      /* RECORD_INLINE; others zero */
	uint64_t incarnation; /* the lane's */
	uint64_t position;    /* of this record */
	uint64_t file_id;     /* 64-bit, never reused in a pool; 0 for PAD */
	uint64_t offset;      /* WRITE, LINES: in the file, bytes. FENCE: position F */
	uint32_t length;      /* payload bytes; PAD: bytes to the ring's end after this header */
	uint32_t chain;	      /* CRC field of the record before; 0: first of its incarnation */
	uint64_t time_ns; /* CLOCK_REALTIME_COARSE, the clock of ctime, read after the real call */
	uint64_t drained; /* durable head when this record's critical section began */
};

#define RECORD_HEADER_BYTES 64u

/* Payload of LINES: a map, bit i (byte i / 8, bit i % 8) for line i of the block that begins at the
 * record's offset (a multiple of 64), then the lines whose bits are set, in order. */
#define LINES_MAP_BYTES 16u
#define LINES_LINE	64u
#define LINES_MAX	(LINES_MAP_BYTES * 8)

/* Room that a record with `length` payload bytes takes in the ring, without a PAD before it. */
static inline uint64_t record_bytes(uint32_t length)
{
	return RECORD_HEADER_BYTES + (((uint64_t)length + 63u) & ~UINT64_C(63));
}

/* Largest payload of one record: ring/8, and never more than bypass_size (both in bytes). */
static inline uint32_t record_payload_max(uint64_t ring_size, uint64_t bypass_size)
{
	uint64_t eighth = ring_size / 8;

	return (uint32_t)(bypass_size < eighth ? bypass_size : eighth);
}

static_assert(sizeof(struct lane_identity) == 64, "identity is one cache line");
static_assert(offsetof(struct lane_identity, crc) == 12, "crc");
static_assert(offsetof(struct lane_identity, ring_size) == 16, "ring_size");
static_assert(offsetof(struct lane_identity, incarnation) == 24, "incarnation");
static_assert(sizeof(struct lane_tail) == 64, "tail is one cache line");
static_assert(sizeof(struct lane_beat) == 64, "heartbeat is one cache line");
static_assert(offsetof(struct lane_header, tail) == 64, "tail");
static_assert(offsetof(struct lane_tail, chain) == 16, "chain at tail");
static_assert(offsetof(struct lane_header, beat) == 128, "heartbeat");
static_assert(offsetof(struct lane_beat, time_check) == 16, "time_check");
static_assert(offsetof(struct lane_header, copy) == LANE_COPY_OFFSET, "copy");
static_assert(sizeof(struct lane_header) == LANE_HEADER_BYTES, "header is one page");
static_assert(sizeof(struct record_header) == RECORD_HEADER_BYTES, "record header");
static_assert(offsetof(struct record_header, length) == 40, "length");
static_assert(offsetof(struct record_header, time_ns) == 48, "time");
static_assert(offsetof(struct record_header, drained) == 56, "drained");
