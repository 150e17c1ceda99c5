/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Every field of what lies in the pool, from include/abi. The lists must add up to the whole structure: a
 * field that is added there without a row here does not compile.
 */

#include "abi/lane.h"
#include "abi/pool.h"

/* X(structure, field) */
#define LAYOUT_SUPERBLOCK(X)                \
	X(pool_superblock, magic)           \
	X(pool_superblock, version)         \
	X(pool_superblock, crc)             \
	X(pool_superblock, sequence)        \
	X(pool_superblock, compat)          \
	X(pool_superblock, ro_compat)       \
	X(pool_superblock, incompat)        \
	X(pool_superblock, emulated)        \
	X(pool_superblock, uuid)            \
	X(pool_superblock, machine_id)      \
	X(pool_superblock, generation)      \
	X(pool_superblock, unsafe_shutdown) \
	X(pool_superblock, next_file_id)    \
	X(pool_superblock, created_ns)      \
	X(pool_superblock, reserved)

#define LAYOUT_DOMAIN(X)                 \
	X(pool_domain, crc)              \
	X(pool_domain, used)             \
	X(pool_domain, sequence)         \
	X(pool_domain, lane)             \
	X(pool_domain, uid)              \
	X(pool_domain, name)             \
	X(pool_domain, ring_size)        \
	X(pool_domain, boot_id)          \
	X(pool_domain, incarnation)      \
	X(pool_domain, verdict)          \
	X(pool_domain, flags)            \
	X(pool_domain, reason)           \
	X(pool_domain, lane_incarnation) \
	X(pool_domain, reserved)

#define LAYOUT_FILE(X)                 \
	X(pool_file, crc)              \
	X(pool_file, used)             \
	X(pool_file, sequence)         \
	X(pool_file, id)               \
	X(pool_file, lane)             \
	X(pool_file, flags)            \
	X(pool_file, fs_uuid)          \
	X(pool_file, handle_type)      \
	X(pool_file, handle_bytes)     \
	X(pool_file, handle)           \
	X(pool_file, btime_ns)         \
	X(pool_file, ctime_ns)         \
	X(pool_file, rewrite_until_ns) \
	X(pool_file, ino)              \
	X(pool_file, path)             \
	X(pool_file, log_disk)         \
	X(pool_file, log_slot)         \
	X(pool_file, reserved)

#define LAYOUT_IDENTITY(X)            \
	X(lane_identity, magic)       \
	X(lane_identity, lane)        \
	X(lane_identity, crc)         \
	X(lane_identity, ring_size)   \
	X(lane_identity, incarnation) \
	X(lane_identity, reserved)

/* Of the lane's header without the two identities. tail, chain: see LAYOUT_TAIL_COPIES. */
#define LAYOUT_TAIL(X)      \
	X(lane_tail, tail)  \
	X(lane_tail, chain) \
	X(lane_tail, reserved)

#define LAYOUT_BEAT(X)           \
	X(lane_beat, time_ns)    \
	X(lane_beat, head)       \
	X(lane_beat, time_check) \
	X(lane_beat, reserved)

#define LAYOUT_HEADER(X)          \
	X(lane_header, identity)  \
	X(lane_header, tail)      \
	X(lane_header, beat)      \
	X(lane_header, reserved0) \
	X(lane_header, copy)      \
	X(lane_header, reserved1)

#define LAYOUT_RECORD(X)              \
	X(record_header, crc)         \
	X(record_header, type)        \
	X(record_header, flags)       \
	X(record_header, incarnation) \
	X(record_header, position)    \
	X(record_header, file_id)     \
	X(record_header, offset)      \
	X(record_header, length)      \
	X(record_header, chain)       \
	X(record_header, time_ns)     \
	X(record_header, drained)

struct layout_field {
	const char *name;
	size_t offset, bytes;
};

#define LAYOUT_BYTES(s, f) +sizeof(((struct s *)0)->f)
#define LAYOUT_WHOLE(list, s) \
	static_assert(0 list(LAYOUT_BYTES) == sizeof(struct s), "a field of " #s " has no row")
LAYOUT_WHOLE(LAYOUT_SUPERBLOCK, pool_superblock);
LAYOUT_WHOLE(LAYOUT_DOMAIN, pool_domain);
LAYOUT_WHOLE(LAYOUT_FILE, pool_file);
LAYOUT_WHOLE(LAYOUT_IDENTITY, lane_identity);
LAYOUT_WHOLE(LAYOUT_TAIL, lane_tail);
LAYOUT_WHOLE(LAYOUT_BEAT, lane_beat);
LAYOUT_WHOLE(LAYOUT_HEADER, lane_header);
LAYOUT_WHOLE(LAYOUT_RECORD, record_header);

#define LAYOUT_ROW(s, f) { #f, offsetof(struct s, f), sizeof(((struct s *)0)->f) },
#define LAYOUT_TABLE(name, list) \
	static const struct layout_field name[] = { list(LAYOUT_ROW){ NULL, 0, 0 } }
