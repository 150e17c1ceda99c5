/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Pool directory: `pool` (superblock and catalog) and one `lane-NNNNNN` for each domain. Little-endian.
 *
 *     pool:  0      4096    8192    65536                           files_offset
 *            | sb A | sb B  |       | domains, each twice           | files, each twice         |
 *
 * Superblock and catalog entries lie twice; a write goes to the damaged or older copy, is drained, then
 * to the other one, and carries a sequence number: the valid copy with the higher one counts.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/control.h"

#define POOL_MAGIC	    "PMPOOL01"
#define POOL_VERSION	    1u
#define POOL_SB_BYTES	    4096u
#define POOL_DOMAINS	    256u
#define POOL_FILES	    16384u
#define POOL_DOMAINS_OFFSET 65536u
#define POOL_ENTRY_BYTES    512u /* of each copy of a catalog entry */
#define POOL_FILES_OFFSET   (POOL_DOMAINS_OFFSET + 2u * POOL_DOMAINS * POOL_ENTRY_BYTES)
#define POOL_BYTES	    ((uint64_t)POOL_FILES_OFFSET + 2u * (uint64_t)POOL_FILES * POOL_ENTRY_BYTES)

#define POOL_FEATURES_COMPAT	0u /* unknown bits: go on */
#define POOL_FEATURES_RO_COMPAT 0u /* unknown bits: read only */
#define POOL_FEATURES_INCOMPAT	0u /* unknown bits: refuse */

struct pool_superblock {
	uint8_t magic[8];
	uint32_t version;
	uint32_t crc; /* CRC32C of the whole 4096 bytes with this field zero */
	uint64_t sequence;
	uint32_t compat, ro_compat, incompat;
	uint32_t emulated; /* 1: not durable, tests and trials */
	uint8_t uuid[16];
	uint8_t machine_id[16];
	uint64_t
		generation; /* mirrored in the state directory, raised at each opening for writing */
	uint64_t
		unsafe_shutdown; /* libpmem2's count when it was last in order; UINT64_MAX: not to be had */
	uint64_t next_file_id; /* ids below it may have been given out; raised in steps */
	uint64_t created_ns;
	uint8_t reserved[POOL_SB_BYTES - 104];
};

enum pool_verdict {
	VERDICT_NONE = 0,	 /* nothing left over, or sessions live */
	VERDICT_UNDECIDED = 1,	 /* recovery began and has not ended */
	VERDICT_HELD = 2,	 /* tried again when something changes */
	VERDICT_QUARANTINED = 3, /* stands until recover --apply or --discard */
	VERDICT_REPLAY = 4, /* judged good; replay may be under way: again gives the same result */
};

#define POOL_DOMAIN_APPLIED 1u /* verdict REPLAY was given by recover --apply */

struct pool_domain {
	uint32_t crc; /* of the entry with this field zero */
	uint32_t used;
	uint64_t sequence;
	uint32_t lane;
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
	uint64_t ring_size;
	uint8_t boot_id[16];  /* of the control file that served last; zero: none */
	uint64_t incarnation; /* its incarnation */
	uint32_t verdict;     /* enum pool_verdict */
	uint32_t flags;	      /* POOL_DOMAIN_* */
	char reason[320];     /* of the verdict, for people */
	/* What stands in the lane's header: it has the first, or is just being given the second; any other
	 * is not the lane that the domain wrote last. First 0: an earlier version's entry, not known. */
	uint64_t lane_incarnation[2];
	uint8_t reserved[48];
};

#define POOL_FILE_UNLINKED 1u
#define POOL_FILE_DEGRADED 2u
/* A native log (abi/log.h): no handle of the kernel's but its name, no file system, no mark, no times. A
 * version that knows no logs finds a file that is not mounted, and holds the domain. */
#define POOL_FILE_LOG 4u

struct pool_file {
	uint32_t crc; /* of the entry with this field zero */
	uint32_t used;
	uint64_t sequence;
	uint64_t id;
	uint32_t lane;
	uint32_t flags; /* POOL_FILE_* */
	uint8_t fs_uuid[16];
	uint32_t handle_type;
	uint32_t handle_bytes; /* at most CTL_HANDLE_MAX */
	uint8_t handle[CTL_HANDLE_MAX];
	int64_t btime_ns;	   /* birth time; 0: the file system has none */
	int64_t ctime_ns;	   /* read before a successful fsync */
	uint64_t rewrite_until_ns; /* changes up to here are the daemon's own */
	uint64_t ino;
	char path[320]; /* for messages only */
	/* POOL_FILE_LOG: */
	uint64_t log_disk; /* LSN: all below is durable in its segments */
	uint32_t log_slot; /* index of struct ctl_log */
	uint8_t reserved[28];
};

static_assert(sizeof(struct pool_superblock) == POOL_SB_BYTES, "superblock");
static_assert(sizeof(struct pool_domain) == POOL_ENTRY_BYTES, "domain entry");
static_assert(offsetof(struct pool_domain, lane_incarnation) == 448, "lane_incarnation");
static_assert(sizeof(struct pool_file) == POOL_ENTRY_BYTES, "file entry");
