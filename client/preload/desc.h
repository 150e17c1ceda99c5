/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Open file descriptions of rule files, and the table that leads to them from descriptor numbers. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/atomic.h"
#include "client/preload/real.h"

#define DESC_FDS   (1 << 20) /* descriptor numbers; the kernel's own default limit (fs.nr_open) */
#define DESC_COUNT 65536u    /* descriptions; picked: more files than any database has logs */

enum desc_kind {
	DESC_ENTRY = 1, /* registered: calls go through pool/file.h */
	DESC_TOKEN =
		2, /* not registered: real calls with the asked sync, a token held if there is one */
	DESC_OURS = 3, /* a descriptor of the shim itself: for the program it is not open */
};

/*
 * All fields are shared by the threads of the process; words that change later are atomic:
 *	refs	seq_cst exchanges both ways: the one that takes the last reference away comes before the one
 *		that finds it free (desc_new), and nobody gets one of a free one (desc_get).
 *	kind	stored seq_cst when all that the kind needs is written; acquired by who needs that. Against
 *		`users`: run_token. DESC_OURS is for good, so relaxed is enough to ask for it.
 *	asked	relaxed: it needs nothing beside it, and the program orders its own calls.
 *	token	exchanged seq_cst by who closes it, so that one does. Relaxed to ask whether there is one.
 *	users	seq_cst: raised, then kind looked at; who changes kind looks at it afterwards (takeover.c).
 *	stay	relaxed, from 0 to 1: stored before the kind that follows from it; who misses it registers the
 *		file once more, and stay_out finds it.
 */
struct desc {
	uint32_t refs;	   /* table slots and calls under way; 0: free */
	uint32_t kind;	   /* enum desc_kind; 0: being made */
	int32_t asked;	   /* O_DIRECT, O_DSYNC, O_SYNC as asked, O_APPEND */
	int32_t token;	   /* descriptor of the token, or -1 */
	uint32_t users;	   /* calls under way that run as DESC_TOKEN */
	uint32_t stay;	   /* never registered again (mapped, a stream, refused) */
	uint64_t page_key; /* the process that took the token */
	uint32_t forks;	   /* and how often it had forked then */
	uint32_t session;  /* index, for DESC_ENTRY */
	uint32_t entry;	   /* index in its control file */
	uint32_t reserved;
	uint64_t id;	    /* of the file */
	uint64_t open_head; /* atomic, relaxed: see struct file_ref; moves up only */
	uint64_t dev, ino;  /* of the real file */
};

/* Table word: a description, bit 0 set where the program did not ask for close-on-exec. */
#define DESC_INHERIT ((uintptr_t)1)
/* Each word: exchanged seq_cst (desc_set, desc_clear), so that each reference is dropped once; acquired by who
 * looks into the description (desc_get), relaxed for the bit and for the question whether there is one. */
extern uintptr_t *desc_table; /* DESC_FDS words; NULL while the library is inert, then constant */

/* Maps table and descriptions (no memory until used). Constructor. 0 or a negative errno. */
int desc_init(void);

/*
 * The fast question of every call: is this descriptor one of ours? NULL almost always. The result is
 * good for that question alone; desc_get gives one that stays.
 */
static inline struct desc *desc_peek(int fd)
{
	uintptr_t word;

	/* One unsigned comparison for negative numbers, too. */
	if (!desc_table || unlikely((unsigned)fd >= DESC_FDS))
		return NULL;
	/* Relaxed: a thread that may use the number has got it by something that orders memory. */
	word = atomic_load_relaxed(&desc_table[fd]);
	return (struct desc *)(word & ~DESC_INHERIT); /* NOLINT: tagged pointer */
}

/* A description of fd that stays until desc_put, or NULL. Lock-free, async-signal-safe. */
struct desc *desc_get(int fd);
void desc_put(struct desc *d);

/* A fresh description with one reference, kind 0, or NULL if there are too many. */
struct desc *desc_new(void);

/* Enters d for fd and takes over one reference. What stood there (a close that we did not see) is
 * dropped. -EMFILE: number too large. */
int desc_set(int fd, struct desc *d, bool inherit);

/* Clears fd's word and drops its reference. desc_clear_if: only where it still leads to d. */
void desc_clear(int fd);
void desc_clear_if(int fd, const struct desc *d);

/* The bit beside it. */
bool desc_inherits(int fd);
void desc_set_inherit(int fd, bool inherit);

/* A descriptor number that leads to an entry (any), or -1. Scans the table up to the highest number. */
int desc_find_fd(uint32_t session, uint32_t entry, uint64_t id);
unsigned desc_high(void); /* no word is set at or above this number */

/* Marks fd as one of the shim's own: moved above the program's numbers where the limit allows.
 * Takes fd over; returns the new number or a negative errno (fd closed then). */
int desc_hide(int fd);
/* The same where it stands: not moved, so nothing is closed. Takes fd over. */
void desc_keep(int fd);
/* Closes a hidden descriptor. */
void desc_unhide_close(int fd);
