/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Small files outside the pool: the state mirror and the machine's id. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/dir/pool.h"

/*
 * Replaces DIR/NAME durably: temporary file, fsync, rename, fsync of the directory. mode: permission
 * bits. Returns 0 or a negative errno; on failure the old content stands.
 */
int file_replace(const char *dir, const char *name, const char *text, unsigned mode);

/* Reads DIR/NAME (at most n - 1 bytes, zero-terminated). Returns its length or a negative errno
 * (-EFBIG: longer). */
int file_read_small(const char *dir, const char *name, char *buf, size_t n);

/*
 * This machine: <state_dir>/machine-id if it is there (a way to carry an id over to a reinstalled
 * machine), else /etc/machine-id, else /var/lib/dbus/machine-id, else a random one that is stored in
 * <state_dir>/machine-id (not with read_only: -ENOENT). Returns 0 or a negative errno.
 */
int machine_id_read(const char *state_dir, bool read_only, uint8_t ret[16]);

/* What the state directory knows about the pool. */
struct pool_state {
	uint8_t uuid[16];
	uint64_t generation;
};

/* <state_dir>/pool.state. 0, -ENOENT (none), -EBADMSG (not understood), or a negative errno. */
int state_read(const char *state_dir, struct pool_state *ret);
/* Durable on return. */
int state_write(const char *state_dir, const struct pool_state *s);

/* 32 hexadecimal digits and a zero. */
void uuid_text(const uint8_t uuid[16], char ret[33]);
bool uuid_parse(const char *text, uint8_t ret[16]);

/* mkdir -p of the last element only; an existing directory is fine. 0 or a negative errno. */
int directory_make(const char *path, unsigned mode);

/* fsync of a directory by path. 0 or a negative errno. */
int directory_sync(const char *path);
