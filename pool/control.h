/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The control file: mapping, checks, and its parts as pointers. Format: abi/control.h. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/control.h"

struct control {
	int fd;	  /* of the control file; one per process, never closed by a session */
	bool ofd; /* the slot is held by the open description (client/lib), not by the process */
	uint64_t dev, ino;     /* of the control file; if ofd */
	struct ctl_head *head; /* mapping, `bytes` */
	uint64_t bytes;	       /* CTL_BYTES, or CTL_ALL_BYTES with images */
	struct ctl_hot *hot;
	struct ctl_slot *slots;	  /* CTL_SLOTS */
	struct ctl_file *files;	  /* CTL_FILES */
	struct ctl_image *images; /* CTL_IMAGES, or NULL */
	uint8_t *image_bytes;	  /* CTL_IMAGES x CTL_IMAGE_BYTES, or NULL */
};

/*
 * Fills an empty, already opened read-write tmpfs file (ownership and mode set by the caller) with a
 * new control file in state CTL_NEW and maps it: *src gives the constant part (magic, version, size,
 * slots, files and state are set here; images other than 0 asks for them); tail = head = position, chain as given. Daemon only. The
 * caller sets the state to CTL_OPEN with a release store once the lane is ready.
 * Returns 0 or a negative errno; on failure nothing stays mapped. Takes the descriptor over on 0.
 */
int control_create(struct control *ret, int fd, const struct ctl_head *src, uint64_t position,
		   uint32_t chain);

/*
 * Maps an existing control file and checks its constant part (copied once, then checked): magic,
 * version, sizes, file size. ret_head is the checked copy; later code uses the copy for anything
 * that matters. Returns 0, -EPROTO (magic, version), -EINVAL (sizes), or a negative errno. The state
 * is not judged here. Takes the descriptor over on 0.
 */
int control_map(struct control *ret, int fd, struct ctl_head *ret_head);

/* Unmaps; closes the descriptor if close_fd (daemon; a session never does). */
void control_unmap(struct control *c, bool close_fd);

/* Reads {head, chain} as one; retries while the writer moves. Acquire: records below head are
 * visible. Bounded (1000 tries, then the last copy: only a hostile peer gets there). */
struct ctl_cell control_head(const struct control *c);

/* One above the highest entry that may be in use, at most CTL_FILES. Relaxed: set before an entry's id
 * (release), so whoever knows of an entry sees it; others find it at the next look. */
uint32_t control_files_end(const struct control *c);

/* Entry of a file by kernel handle (type and bytes), or -1. Scans; for open, not for writes. */
int control_find(const struct control *c, uint32_t handle_type, const void *handle,
		 uint32_t handle_bytes);
