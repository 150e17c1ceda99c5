/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Session slots: one fcntl-locked byte for each process of the domain. */

#include <stdbool.h>
#include <stdint.h>

#include "pool/control.h"

/* Who holds a lock: the thing that stands in lock words. */
struct holder {
	uint32_t slot;
	uint32_t generation; /* low 24 bits of the slot's */
};

/*
 * Takes a slot for this process: session lock shared (F_SETLKW, bounded by 1 s of tries), a free byte
 * by F_SETLK (POSIX locks: they end with the process and are not inherited over fork), generation
 * raised before anything else, then state and incarnation read: closed or other than expected gives
 * the byte back. Under the lane lock the slot's old note is struck out and the total recomputed
 * (space.h). The session lock is released at the end.
 * A process has one slot per control file: POSIX locks do not stop it from taking its own byte again,
 * so a second call gives the same slot with a new generation, and the first holder counts as dead.
 * With c->ofd the byte belongs to the open description, and lives as long as that or a mapping made with it.
 * Returns 0, -ESTALE (closed: open the path anew), -EMFILE (no free slot), or a negative errno.
 */
int slot_take(const struct control *c, uint64_t incarnation, struct holder *ret);

/* The daemon's slot 0, by an OFD lock on its byte (F_OFD_SETLK): -EBUSY if another daemon has it. */
int slot_take_daemon(const struct control *c, struct holder *ret);

/* True if the holder of that word is gone: its byte is free (F_OFD_GETLK) or the slot's generation
 * differs from the word's. A system call; never on the fast path. */
bool slot_dead(const struct control *c, uint64_t word);

/* True if a daemon holds slot 0 (asked by a session: a daemon does not see its own). */
bool slot_daemon_live(const struct control *c);

/* True if any session's byte (1..CTL_SLOTS-1) is locked by anybody. One F_OFD_GETLK. */
bool slot_any_live(const struct control *c);

/* True if this process holds a slot by a POSIX lock (the shim's), through another description than c->fd. */
bool slot_of_process(const struct control *c);

/* Number of live sessions; ret_versions[v] (v < n) counts by slot version. For status. */
unsigned slot_count(const struct control *c, unsigned *ret_versions, unsigned n);

/* Session lock exclusive by OFD lock, without waiting longer than timeout_ms. -EAGAIN: a session is
 * taking a slot. */
int session_lock_exclusive(const struct control *c, unsigned timeout_ms);
void session_unlock(const struct control *c);
