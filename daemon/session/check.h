/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One packet of a client, checked as a whole before anything acts on it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/log.h"
#include "abi/wire.h"

/* A private copy of a request whose every field was looked at. */
struct wire_request {
	struct wire_header header;
	union {
		struct wire_hello hello;
		struct wire_register reg;
		struct wire_domain domain; /* STATUS, FLUSH, GATE, LOG_LIST */
		struct wire_recover recover;
		struct wire_features features;
		struct wire_log log; /* LOG_OPEN, READ, TRIM, SYNC, STAT, SEGMENT, REMOVE */
		struct wire_log_append append;
	};
	const void *payload; /* LOG_APPEND: append.length bytes in the packet, to be read once */
};

/*
 * Copies and checks a packet of n bytes that came with fds descriptors: magic, known type, kind, status,
 * length of header and body, texts terminated, names of allowed characters, flags known, reserved
 * words zero, and exactly the descriptors that the type asks for. Paths and program names are made
 * printable in the copy. No side effect but *ret; ret->header is filled even on failure if the packet
 * has a whole one (else zero). Returns 0, -EPROTO (why: static text), or -EPROTONOSUPPORT (a HELLO
 * in order, of an ABI that is not served).
 */
int wire_check(struct wire_request *ret, const void *packet, size_t n, unsigned fds,
	       const char **why);

/* True for 1..63 characters of A-Z a-z 0-9 _ . @ - (but `.` and `..`), terminated within n bytes. */
bool wire_domain_name_ok(const char *name, size_t n);

/* True if messages of that type are for root and the daemon's own user. */
bool wire_is_admin(uint16_t type);

/* True if messages of that type are about one native log. */
bool wire_is_log(uint16_t type);

/* Name of a message for the log. */
const char *wire_type_name(uint16_t type);
