/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Socket messages: SOCK_SEQPACKET, one packet a message, header and body of fixed size, descriptors
 * by SCM_RIGHTS. Native byte order: both ends are on one machine. The header and the bodies of HELLO
 * are frozen for ever. Every request gets WIRE_PENDING at once when its answer needs a worker, then
 * exactly one final reply with the same id.
 */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/control.h"

#define WIRE_MAGIC 0x4c4d5031u /* "1PML" */
#define WIRE_MAX   4096u       /* bytes of the largest packet */
#define WIRE_TEXT  512u	       /* bytes of a reason or path, with its terminating zero */

enum wire_type {
#define MESSAGE(name, id, request, reply, admin) WIRE_##name = id,
#include "abi/messages.def"
#undef MESSAGE
};

enum wire_kind {
	WIRE_REQUEST = 0,
	WIRE_REPLY = 1,
	WIRE_PENDING = 2, /* taken on by a worker; no body */
};

struct wire_header {
	uint32_t magic;	     /* WIRE_MAGIC */
	uint16_t type;	     /* enum wire_type */
	uint16_t kind;	     /* enum wire_kind */
	uint64_t request_id; /* chosen by the client, repeated in the replies */
	int32_t status;	     /* replies: 0 or a negative errno */
	uint32_t length;     /* bytes of body that follow */
};

/* First message of a connection: which domain, which ABI. */
struct wire_hello {
	uint32_t version; /* CTL_VERSION of the client */
	uint32_t want;	  /* WIRE_WANT_* */
	char domain[CTL_DOMAIN_MAX];
	char program[64]; /* base name of the executable, for people */
};
#define WIRE_WANT_LANE 1u /* send the descriptors; clear when the client has them (re-attach) */

/* status 0: two descriptors, control file then lane file (read-write), unless not wanted.
 * -EBUSY: the domain is held or quarantined (text says why). -EACCES: not allowed. -EPROTO: version.
 * -ENOSPC: no room in the pool for a new lane. */
struct wire_hello_reply {
	uint32_t version; /* CTL_VERSION of the control file */
	uint32_t lane;
	uint64_t incarnation;
	char text[WIRE_TEXT];
};

/* One descriptor goes with it: the file, open for writing. */
struct wire_register {
	uint32_t flags; /* zero */
	uint32_t reserved;
	char path[WIRE_TEXT]; /* for messages only; may be cut off */
};

/* status 0: registered. -EINVAL: no regular file, or not open for writing. -EOPNOTSUPP: file system
 * not supported. -ENFILE: no free entry. -EIO: sync failed. All but 0: the file stays as it was. */
struct wire_register_reply {
	uint32_t entry; /* index in the control file */
	uint32_t state; /* enum ctl_file_state */
	uint64_t id;	/* file id */
	char text[WIRE_TEXT];
};

/* domain "" means all. The name may be USER/NAME. STATUS: the reply carries one descriptor, a
 * memory file with the JSON document. */
struct wire_domain {
	uint32_t flags; /* zero */
	uint32_t reserved;
	char domain[128];
};

enum wire_recover_mode {
	WIRE_RECOVER_DRY_RUN = 0, /* judge and say, change nothing */
	WIRE_RECOVER_APPLY = 1,	  /* replay in spite of the named rows */
	WIRE_RECOVER_DISCARD = 2, /* give the records up; they are kept under the state directory */
	WIRE_RECOVER_ADOPT = 3,	  /* clear a foreign mark of path */
};

/* ADOPT: one descriptor goes with it, the file. The reply carries a memory file with a report in
 * JSON (DRY_RUN, APPLY, DISCARD). */
struct wire_recover {
	uint32_t mode; /* enum wire_recover_mode */
	uint32_t reserved;
	char domain[128];
};

/* status -EBUSY: degraded or refused, text says what and what to do. */
struct wire_reply {
	uint32_t exit; /* exit code for pmemlogctl */
	uint32_t reserved;
	char text[WIRE_TEXT];
};

static_assert(sizeof(struct wire_header) == 24, "frozen");
static_assert(sizeof(struct wire_hello) == 136, "frozen");
