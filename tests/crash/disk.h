/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Files as a power cut sees them: page cache, what is on the disk, sectors that tear, sizes that lag,
 * a sync that fails once and forgets (as Linux does: the pages are called clean, each description is
 * told once). Descriptors are small numbers; disk_io is the filling of struct session_io.
 */

#include <stdbool.h>
#include <stdint.h>

#include "pool/session.h"
#include "tests/crash/random.h"

#define DISK_FILES   5	    /* the last ones are made when others are gone */
#define DISK_AT_ONCE 3	    /* there at the start */
#define DISK_BYTES   16384u /* largest file */
#define DISK_SECTOR  512u
#define DISK_SECTORS (DISK_BYTES / DISK_SECTOR)
#define DISK_FDS     64
/* What a foreign appender writes. */
#define DISK_FOREIGN	  37u
#define DISK_FOREIGN_BYTE 0xf0
#define DISK_MAJOR	  7u
#define DISK_MINOR	  1u

struct disk_file {
	uint8_t cache[DISK_BYTES]; /* what readers see */
	uint8_t safe[DISK_BYTES];  /* what the disk has */
	uint64_t size, safe_size;
	uint64_t ctime_ns, safe_ctime_ns;
	uint8_t dirty[DISK_SECTORS];
	bool truncated; /* a cut below safe_size is not committed; nothing above it is on disk */
	uint64_t truncated_to;
	unsigned links;
	unsigned name, safe_name; /* a number for its newest name; 0: none */
	unsigned calls,
		safe_calls;  /* truncates and writes above the payload limit; those on the disk */
	unsigned generation; /* how often its inode was used anew */
	bool unlink_safe;    /* links 0 is on the disk */
	uint32_t errors;     /* failed write-backs so far */
	bool fail_next;	     /* the next write-back fails */
	bool evicted;	     /* lost pages were dropped and read again: readers may see old bytes */
};

struct disk_fd {
	int file; /* -1: closed */
	int64_t position;
	bool append;
	uint32_t errors_seen;
};

struct disk {
	struct disk_file files[DISK_FILES];
	struct disk_fd fds[DISK_FDS];
	uint64_t version;  /* raised at each change */
	bool short_next;   /* the next write of more than one byte is cut short */
	bool foreign_next; /* somebody else appends before the next append */
	bool unlink_fails; /* the next unlink is refused */
	unsigned next_name;
	void (*step)(void); /* called before, in the middle of and after each call */
};

extern struct disk disk;
extern const struct session_io disk_io;

/* Writes of more bytes have no record, so a caller's death in one must be put right. */
#define DISK_BIG 3072u

/* Empty files with size bytes of zeros, durable. */
void disk_clear(void (*step)(void), uint64_t size);
int disk_open(int file, bool append);
void disk_close(int fd);
uint64_t disk_ino(int file);

/* The calls that the product makes through a file_call. 0 or a negative errno. */
int disk_truncate(int file, uint64_t size);
void disk_chmod(int file);
/* -EPERM when that was ordered (unlink_fails): nothing is done. */
int disk_unlink(int file);
void disk_link(int file);
/* To a new name; over >= 0: to that file's name, which it loses. */
void disk_rename(int file, int over);
/* A new, empty file on the inode of one that is gone; durable with its name. */
void disk_create(int file, uint64_t size);

/* The kernel's own doing: write some sectors back, drop clean pages that were lost. */
void disk_write_back(int file, struct rng *r);
void disk_evict(int file);

/* What a cut leaves of one file. */
struct disk_cut {
	uint8_t bytes[DISK_BYTES];
	uint64_t size;
	uint64_t ctime_ns;
	unsigned name;
	bool exists;
};

enum cut_policy {
	CUT_OLD,   /* only what was synced */
	CUT_NEW,   /* all that was written */
	CUT_MIXED, /* each sector, size and name by chance */
	CUT_POLICIES,
};

void disk_cut(int file, enum cut_policy policy, struct rng *r, struct disk_cut *ret);
