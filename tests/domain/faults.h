/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Faults in the daemon's calls on backing files: this program defines fsync and fdatasync itself, as a
 * preloaded library would. Client processes use raw system calls and see nothing of it.
 */

#include <stdint.h>

/* Syncs of inode `ino` return -1 and errno `error` (0: they work again) without reaching the disk. */
void faults_set(uint64_t ino, int error);
/* How many fdatasync and fsync reached the disk for the inode. */
unsigned faults_syncs(uint64_t ino);
/* Each write of the daemon begins so late; 0: at once. */
void faults_slow_writes(unsigned ms);
/* Calls it once, after the next good sync of that inode. */
void faults_after_sync(uint64_t ino, void (*call)(void));
/* Calls it once, before the next opening anew of a descriptor's file, by its path in /proc. */
void faults_before_reopen(void (*call)(void));
/* Opening by handle fails with that errno; 0: not any more. */
void faults_open_by_handle(int error);
