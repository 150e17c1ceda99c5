/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Runs that go through one thing in order: a kill at every step, two calls at once, the ring's end. */

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/ops.h"

/* (state, call, step) for every state and call; steps beyond the call's last one are counted, too, and cost
 * nothing: the run is not checked. */
uint64_t scan_killed_count(void);
void scan_killed(struct ops *o, uint64_t n);
/* A number like n, of that call. */
uint64_t scan_killed_only(uint64_t n, enum op op);

/* (call, call, state) in turn; steps by chance. */
void scan_beside(struct ops *o, uint64_t n);
/* The same, of that call and another; of the daemon's work beside each. */
uint64_t scan_beside_only(uint64_t n, enum op op);

/* (lines left, lines of the record, killed or not) */
uint64_t scan_wrapped_count(void);
void scan_wrapped(struct ops *o, uint64_t n);

void scan_coverage(void);
