/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Native logs. A log is an entry of the control file like a file's, with handle type CTL_LOG_HANDLE and the
 * log's name as its handle, and a place for what files do not have: behind everything that a control file
 * without logs ends with, so that who knows no logs maps none of it.
 *
 *     CTL_LOGS_OFFSET + i x CTL_LOG_BYTES:  | struct ctl_log, one page | stage, CTL_LOG_STAGE |
 *
 * In the lane a log's records are WRITE without INLINE; `offset` is the LSN of their first byte.
 *
 * The stage holds what was appended without waiting: frames of struct ctl_log_frame and payload, each padded
 * to 8 bytes, in a ring; `in` and `out` count bytes and never go back, a frame may wrap. Producers come
 * one at a time by the entry's lock, the one that moves frames into the lane by the lane's lock.
 */

#include "abi/control.h"
#include "abi/wire.h"

#define CTL_LOGS 64u /* logs of one domain that are open at the same time */
#define CTL_LOG_HANDLE \
	0x4c4f47u /* handle type of an entry: no file's, the kernel's are below 256 */
#define CTL_LOG_NAME_MAX    CTL_HANDLE_MAX /* bytes with the terminating zero */
#define CTL_LOG_STAGE	    131072u	   /* picked: a thousand small records between two waits */
#define CTL_LOG_BYTES	    (4096u + CTL_LOG_STAGE)
#define CTL_LOGS_OFFSET	    CTL_ALL_BYTES
#define CTL_WITH_LOGS_BYTES (CTL_LOGS_OFFSET + (uint64_t)CTL_LOGS * CTL_LOG_BYTES)

struct ctl_log {
	/* Line 0: under the lane lock. */
	uint64_t id; /* of the entry; 0: free. Release by the daemon, acquire by sessions */
	uint64_t
		lsn; /* all below is durable: the next record in the lane has it. Release after the head is
			 published; futex on its low half */
	uint64_t out; /* stage: bytes that were moved into the lane */
	/* What lsn and out become if the record at position next_at - 1 is the log's own and stands below head:
	 * whoever publishes may die between the head and these. next_at 0: nothing is pending. */
	uint64_t next_at;
	uint64_t next_lsn;
	uint64_t next_out;
	uint32_t wanted; /* a follower sleeps on lsn; seq_cst on both sides, see pool/log.c */
	uint32_t entry;	 /* index of the control file's entry */
	uint8_t reserved0[8];

	/* Line 1: under the entry's lock. */
	uint64_t staged; /* LSN behind the newest frame; recomputed after an owner died */
	uint64_t in;	 /* stage: bytes behind the newest frame; release, pairs with the mover */
	uint8_t reserved1[48];

	/* Line 2: the daemon writes it. */
	uint64_t first;	    /* LSN of the oldest record that is kept */
	uint64_t disk;	    /* all below is durable in segments; release */
	uint64_t capacity;  /* bytes; 0: none */
	uint32_t failing;   /* the last destage of it failed */
	uint32_t read_only; /* only who made it writes it: mode 0400 */
	uint8_t reserved2[32];

	uint8_t reserved[4096 - 192];
};

struct ctl_log_frame {
	uint32_t length; /* payload bytes */
	uint32_t check;	 /* ~length: a frame that is none stops the mover */
};

/*
 * Segments: files of <state_dir>/logs/<uid>-<domain>/<log>/, written by the daemon alone, little-endian. Named
 * by their first LSN, 16 hexadecimal digits and ".log". A header, then frames without a gap; a frame's LSN
 * is the one before's plus its length.
 */
#define SEGMENT_MAGIC	     "PMLSEG01"
#define SEGMENT_VERSION	     1u
#define SEGMENT_HEADER_BYTES 512u
#define SEGMENT_BYTES	     (16u << 20) /* picked: a file that takes milliseconds to read */

struct segment_header {
	uint8_t magic[8]; /* SEGMENT_MAGIC */
	uint32_t version; /* SEGMENT_VERSION */
	uint32_t crc;	  /* CRC32C of these 512 bytes with this field zero */
	uint8_t log[16]; /* random, of the log's making: another log of the same name has another */
	uint64_t lsn;	 /* of the first frame */
	uint64_t time_ns; /* CLOCK_REALTIME of its making */
	uint32_t uid;	  /* of the domain */
	uint32_t reserved0;
	char domain[CTL_DOMAIN_MAX];
	char name[CTL_LOG_NAME_MAX];
	uint8_t reserved[SEGMENT_HEADER_BYTES - 184];
};

struct segment_frame {
	uint32_t crc;	   /* CRC32C of bytes 4..31, the payload and the zeros behind it */
	uint32_t length;   /* payload bytes; padded with zeros to a multiple of 8 behind it */
	uint64_t lsn;	   /* of the payload's first byte */
	uint64_t time_ns;  /* the lane record's */
	uint32_t log;	   /* first four bytes of the header's `log` */
	uint32_t reserved; /* zero */
};
#define SEGMENT_FRAME_BYTES 32u

/* Bytes that a frame takes in a segment. */
static inline uint64_t segment_frame_bytes(uint32_t length)
{
	return SEGMENT_FRAME_BYTES + (((uint64_t)length + 7u) & ~UINT64_C(7));
}

/* Bytes that a frame takes in the stage. */
static inline uint64_t stage_frame_bytes(uint32_t length)
{
	return sizeof(struct ctl_log_frame) + (((uint64_t)length + 7u) & ~UINT64_C(7));
}

/* ---- socket messages ---------------------------------------------------------------------------- */

/*
 * FEATURES may come before HELLO. All others need a HELLO that succeeded; they name the log, so that none
 * depends on an earlier one: a log that is not open is opened. A connection that used one counts as a
 * session of its domain until it ends, which keeps the domain from being closed under it.
 */
#define WIRE_FEATURE_LOGS 1u

#define WIRE_LOG_MAX	 65536u /* bytes of the largest packet of LOG_APPEND, LOG_READ */
#define WIRE_LOG_PAYLOAD 61440u /* bytes of one LOG_APPEND, and of data in one answer of LOG_READ */

struct wire_features {
	uint32_t version; /* of this message: 1 */
	uint32_t want;	  /* zero */
};

struct wire_features_reply {
	uint32_t version;     /* CTL_VERSION of the daemon */
	uint32_t features;    /* WIRE_FEATURE_* */
	uint32_t packet_max;  /* WIRE_LOG_MAX */
	uint32_t append_max;  /* WIRE_LOG_PAYLOAD */
	uint32_t outstanding; /* requests of one connection at a time */
	uint32_t logs_max;    /* CTL_LOGS */
	uint8_t reserved[40];
};

enum wire_log_flags {
	/* LOG_OPEN; the values of enum pmemlogd_open_flags */
	WIRE_LOG_CREATE = 1,
	WIRE_LOG_EXCLUSIVE = 2,
	WIRE_LOG_READ_ONLY = 4,
	/* LOG_READ: whole records from the one at lsn on; else bytes from lsn on */
	WIRE_LOG_RECORDS = 16,
};

/* LOG_OPEN, LOG_TRIM, LOG_SYNC, LOG_STAT, LOG_SEGMENT, LOG_REMOVE, LOG_READ. domain "": the one of HELLO; else
 * NAME or USER/NAME, for root and the daemon's own user. What a message does not use is zero. */
struct wire_log {
	uint32_t flags; /* enum wire_log_flags */
	uint32_t mode;	/* LOG_OPEN with CREATE: 0600 or 0400 */
	uint64_t lsn;	/* LOG_TRIM, LOG_SYNC, LOG_READ, LOG_SEGMENT */
	uint64_t value; /* LOG_OPEN with CREATE: capacity. LOG_READ: bytes wanted, at most
			   WIRE_LOG_PAYLOAD */
	uint32_t
		timeout_ms; /* LOG_READ: wait so long for a record at lsn; LOG_SYNC. UINT32_MAX: for ever */
	uint32_t reserved;
	char name[CTL_LOG_NAME_MAX];
	char domain[128];
};

/* `length` payload bytes follow the body. status 0: durable, lsn is the record's. */
struct wire_log_append {
	uint32_t flags;	 /* zero */
	uint32_t length; /* 1 to WIRE_LOG_PAYLOAD */
	char name[CTL_LOG_NAME_MAX];
	char domain[128];
};

/*
 * Answer of all but LOG_READ and LOG_LIST. LOG_OPEN with a domain of one's own, and LOG_SEGMENT: see below. status as
 * pmemlogd.h documents for the function; -EBADMSG, -EBUSY: text says what.
 * LOG_SEGMENT: one descriptor, the segment that lsn lies in, read-only; `lsn` is its first.
 */
struct wire_log_reply {
	uint64_t id;  /* of the log in this life of the domain */
	uint64_t lsn; /* LOG_APPEND: of the record. LOG_TRIM: of the first record left */
	uint64_t first, disk, durable; /* as in struct pmemlogd_stat */
	uint64_t capacity;
	uint32_t record_max;
	uint32_t entry; /* index of the control file's entry */
	uint32_t slot;	/* index of struct ctl_log */
	uint32_t failing;
	char text[WIRE_TEXT];
};

/* Answer of LOG_READ; `length` bytes follow. RECORDS: each is a struct segment_frame (crc over it and its
 * payload) and its payload, padded to 8; at least one whole record, or none: the time is over. A
 * record longer than WIRE_LOG_PAYLOAD - 32 is not given out so (-EMSGSIZE): read its bytes. */
struct wire_log_data {
	uint64_t lsn;	  /* of the first byte given */
	uint64_t next;	  /* LSN behind the last one */
	uint64_t durable; /* the log's end now */
	uint32_t length;
	uint32_t reserved;
	char text[WIRE_TEXT];
};

static_assert(sizeof(struct ctl_log) == 4096, "one page");
static_assert(offsetof(struct ctl_log, staged) == 64, "line 1");
static_assert(offsetof(struct ctl_log, first) == 128, "line 2");
static_assert(CTL_LOGS_OFFSET % 4096 == 0 && CTL_LOG_BYTES % 4096 == 0, "pages");
static_assert((CTL_LOG_STAGE & (CTL_LOG_STAGE - 1)) == 0, "a power of two");
static_assert(sizeof(struct segment_header) == SEGMENT_HEADER_BYTES, "segment header");
static_assert(sizeof(struct segment_frame) == SEGMENT_FRAME_BYTES, "frame");
static_assert(sizeof(struct wire_log) == 224, "log request");
static_assert(sizeof(struct wire_log_append) == 200, "append");
