/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Control file: the volatile half of a lane, <run_dir>/control/LANE on tmpfs, shared by the domain's
 * processes and the daemon. It outlives the daemon and not the boot. Owned by the domain's uid, so
 * the daemon believes nothing in it: it only loads, stores and compares words.
 *
 *     0        4096         8192      CTL_FILES_OFFSET  CTL_BYTES        CTL_IMAGES_OFFSET
 *     | head   | hot words  | slots   | files           | image heads    | images       |
 *
 * Lock words, 64 bits: 0, or slot << 48 | generation << 24 | thread id. A thread id is there so
 * that the threads of one process, which share a slot, can tell a dead owner among themselves.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define CTL_MAGIC	 "PMCTL001"
#define CTL_VERSION	 1u
#define CTL_HEAD_BYTES	 4096u
#define CTL_HOT_OFFSET	 4096u
#define CTL_SLOTS_OFFSET 8192u
#define CTL_SLOTS	 1024u /* processes of one domain; picked: three times PostgreSQL's 300 backends */
#define CTL_FILES	 4096u /* registered files of one domain; picked: ten years of daily binlogs */
#define CTL_SLOT_DAEMON	 0u
#define CTL_IMAGES	 512u /* entries that may keep the image of a block; picked: 4 MiB of tmpfs */
#define CTL_IMAGE_BYTES	 8192u /* largest block: what the 128 bits of a LINES map stand for */
#define CTL_DOMAIN_MAX	 64u   /* bytes of a domain's name with its terminating zero */
#define CTL_HANDLE_MAX	 64u   /* bytes of a file handle; ext4 8, xfs 12, btrfs up to 40 */

/* fcntl locks lie beyond the end of the file: the session lock, then one byte for each slot. */
#define CTL_LOCK_SESSION    (INT64_C(1) << 40)
#define CTL_LOCK_SLOT(slot) (CTL_LOCK_SESSION + 1 + (int64_t)(slot))

enum ctl_state {
	CTL_NEW = 0,	/* under construction: wait or let go */
	CTL_OPEN = 1,	/* sessions may take slots */
	CTL_CLOSED = 2, /* let go, open the path anew */
};

enum ctl_media {
	CTL_MEDIA_EMULATED = 1, /* plain shared mapping; not durable */
	CTL_MEDIA_FSDAX = 2,	/* MAP_SHARED_VALIDATE | MAP_SYNC demanded */
};

/* Written by the daemon before state becomes CTL_OPEN, constant from then on (but for state). The
 * first 64 bytes are frozen for ever. */
struct ctl_head {
	uint8_t magic[8];     /* CTL_MAGIC */
	uint32_t version;     /* CTL_VERSION */
	uint32_t state;	      /* enum ctl_state; release by the daemon, acquire by sessions */
	uint32_t lane;	      /* lane number */
	uint32_t uid;	      /* of the domain */
	uint64_t incarnation; /* the lane's */
	uint64_t size;	      /* CTL_BYTES; images come after */
	uint32_t slots;	      /* CTL_SLOTS */
	uint32_t files;	      /* CTL_FILES */
	uint8_t frozen[16];   /* zero */

	char domain[CTL_DOMAIN_MAX];
	uint8_t pool_uuid[16];
	uint8_t boot_id[16];
	uint64_t ring_size;	       /* bytes */
	uint64_t bypass_size;	       /* bytes; larger writes take RULE F */
	uint64_t reconnect_timeout_ns; /* no progress for so long: bypass */
	uint32_t media;		       /* enum ctl_media */
	uint32_t images;     /* CTL_IMAGES; 0: whole records only, nothing lies beyond CTL_BYTES */
	char lane_path[512]; /* absolute path of the lane file, for attaching without a daemon */
};

struct ctl_lock {
	uint64_t word; /* see above; futex on its low half */
	uint32_t
		waiters; /* how many sleep on it; too high after a waiter's death costs a wake only */
	uint32_t waking; /* one sleeper is woken and has not run yet: no second wake. Left at 1 by a
			    death it costs the others one look (100 ms) */
};

struct ctl_cell {
	uint64_t head;	/* position after the newest published record */
	uint32_t chain; /* its CRC field; 0: none in this incarnation */
	uint32_t reserved;
};

struct ctl_hot {
	/* Line 0: the lane lock's holder writes it. {head, chain} are published as one: the holder
	 * fills cell[(index + 1) & 1], then stores index + 1 (release; pairs with ctl_head_read). */
	struct ctl_lock lane_lock;
	struct ctl_cell cell[2];
	uint32_t index;
	uint32_t live_files;	 /* files with live records; exact after each trim, else at least */
	uint64_t reserved_bytes; /* sum of the slots' notes; under the lane lock */

	/* Line 1: under the lane lock. */
	uint64_t last_ns;    /* time_ns of the newest record */
	uint64_t records;    /* counters since the control file was made */
	uint64_t bytes;	     /* payload */
	uint64_t wraps;	     /* PAD records */
	uint64_t full_waits; /* relaxed: how often a writer found no room */
	uint64_t edeadlk; /* relaxed: calls refused since a signal handler came from inside one */
	uint64_t owner_died; /* relaxed: takeovers */
	uint64_t rule_f;     /* relaxed: calls that took RULE F, and destage steps */

	/* Line 2: the daemon writes it (tail and live_files under the lane lock). */
	uint64_t tail;	     /* records below it are trimmed; release, pairs with space_reserve */
	uint64_t beat_ns;    /* CLOCK_REALTIME of the last heartbeat persisted */
	uint64_t beat_head;  /* and its head */
	uint32_t trim_seq;   /* futex of writers that wait for room; raised after each trim */
	uint32_t daemon_seq; /* raised by the daemon at each start that serves this lane */
	uint64_t daemon_ns;  /* CLOCK_MONOTONIC of the destager's last step (progress) */
	uint32_t files_end;  /* no used entry at or above it, only raised; 0: not told */
	uint8_t reserved2[20];

	/* Line 3: sleep and wake of the destager, seq_cst on both sides. */
	uint32_t asleep; /* futex: 0 awake, 1 sleeps till the first record, 2 sleeps with a time-out
				   and wants a wake when more than a quarter of the ring is used,
				   3 sleeps with a time-out and wants a wake by the next record */
	uint32_t space_waiters; /* writers that wait for room */
	uint8_t reserved3[56];
};

/* Held by an fcntl lock on CTL_LOCK_SLOT(i) until the process ends. */
struct ctl_slot {
	uint64_t
		generation; /* raised by whoever locks the byte, before anything else; 24 bits used */
	uint64_t note;	    /* reserved lane bytes of this process; under the lane lock */
	uint32_t pid;	    /* for people */
	uint32_t version;   /* CTL_VERSION the process was built with */
	uint64_t since_ns; /* CLOCK_REALTIME of taking */
	uint8_t reserved[32];
};

enum ctl_file_state {
	FILE_LANE = 1,	 /* writes go to the file and the lane */
	FILE_BYPASS = 2, /* writes go to the file with the sync that the program asked for */
};

enum ctl_bypass_reason {
	BYPASS_NONE = 0,
	BYPASS_LANE_FULL = 1, /* no room and no daemon for reconnect_timeout */
	BYPASS_TOKEN = 2,     /* somebody writes it without a session (token held) */
	BYPASS_FOREIGN = 3,   /* a foreign writer, or a second domain */
	BYPASS_MAPPED = 4,    /* writable shared mapping: for good */
	BYPASS_STREAM = 5,    /* fdopen, io_uring, inherited over exec: for good */
	BYPASS_HOLD = 6,      /* hold, by command */
};

/* One registered file. The daemon fills identity and stores `id` last (release). */
struct ctl_file {
	struct ctl_lock lock;
	uint64_t id;	/* 0: free entry. Acquire by sessions */
	uint32_t state; /* enum ctl_file_state; changed under the file lock only */
	uint32_t op;	/* RULE F under way; stays set when its last sync failed */
	/* under the file lock: */
	uint64_t first; /* position of the oldest record that may be live */
	uint64_t last;	/* position after the newest record that is no FENCE; 0: none */
	uint64_t fence; /* newest F */
	/* atomic counters: */
	uint32_t degraded; /* raised by each failed sync; 0 again only by a heal that it outlived */
	uint32_t reason;   /* enum ctl_bypass_reason */
	uint64_t needs_sync; /* raised before and after calls that a real fsync must cover */
	uint64_t synced;     /* value of needs_sync when the last good real sync began */
	uint64_t bypass_ns;  /* CLOCK_REALTIME of entering bypass */
	uint32_t unlinked;   /* an UNLINK record was written */
	uint32_t handle_type;
	uint32_t handle_bytes; /* at most CTL_HANDLE_MAX */
	uint32_t dev_major, dev_minor;
	uint32_t reserved0;
	uint64_t ino;
	uint8_t handle[CTL_HANDLE_MAX]; /* of name_to_handle_at: inode with generation */
	uint64_t records, bytes;	/* relaxed counters */
	/* under the file lock: a write that has no record yet; length 0: none */
	uint64_t write_offset;
	uint32_t write_length;
	uint32_t reserved1;
	uint64_t saved; /* relaxed counter: payload bytes that LINES left out */
	uint8_t reserved[32];
};

/*
 * What a file's last written block will hold after recovery, all under the file's lock (pool/image.h).
 * Entry i has image i. The bytes of the image lie at ctl_image_bytes.
 */
struct ctl_image {
	uint32_t valid;	 /* struck out first, set last: an owner may die at any instruction */
	uint32_t length; /* bytes, a multiple of 64 */
	uint64_t offset; /* in the file, a multiple of 64 */
	uint64_t id;	 /* of the file that it is of */
	uint64_t rule_f; /* hot's counter before its block was logged whole */
	uint64_t last_start, last_end; /* of the last write: is the next one a rewrite? */
	uint32_t
		rewrites; /* above 0: the file's blocks are rewritten, an image is worth its copy */
	uint8_t reserved[12];
};

#define CTL_FILES_OFFSET  (CTL_SLOTS_OFFSET + CTL_SLOTS * (uint32_t)sizeof(struct ctl_slot))
#define CTL_BYTES	  ((uint64_t)CTL_FILES_OFFSET + (uint64_t)CTL_FILES * sizeof(struct ctl_file))
#define CTL_IMAGES_OFFSET (CTL_BYTES + CTL_IMAGES * sizeof(struct ctl_image))
#define CTL_ALL_BYTES	  (CTL_IMAGES_OFFSET + (uint64_t)CTL_IMAGES * CTL_IMAGE_BYTES)

static_assert(offsetof(struct ctl_head, state) == 12, "frozen");
static_assert(offsetof(struct ctl_head, frozen) == 48, "frozen");
static_assert(offsetof(struct ctl_head, domain) == 64, "frozen part is 64 bytes");
static_assert(sizeof(struct ctl_head) <= CTL_HEAD_BYTES, "head");
static_assert(sizeof(struct ctl_lock) == 16, "lock");
static_assert(sizeof(struct ctl_hot) == 256, "four cache lines");
static_assert(offsetof(struct ctl_hot, last_ns) == 64, "line 1");
static_assert(offsetof(struct ctl_hot, tail) == 128, "line 2");
static_assert(offsetof(struct ctl_hot, asleep) == 192, "line 3");
static_assert(sizeof(struct ctl_slot) == 64, "slot");
static_assert(sizeof(struct ctl_file) == 256, "file entry");
static_assert(sizeof(struct ctl_image) == 64, "image head");
static_assert(CTL_BYTES % 4096 == 0 && CTL_IMAGES_OFFSET % 4096 == 0, "pages");
