/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Two calls at once, one of them running at any time: changed over where the schedule says, or where one
 * waits for a lock that the other holds. Threads that hand a baton on: what sanitizers understand.
 */

#include <stdbool.h>
#include <stdint.h>

struct fiber_call {
	void (*body)(void *arg);
	void *arg;
	unsigned actor;	    /* who makes it: world_act */
	uint64_t switch_at; /* its own step before which the other one goes on; 0: none */
};

/* True when both came to their end; false: each waits for the other. Call 0 begins. */
bool fibers_run(const struct fiber_call call[2]);

/* True while two calls are under way. */
bool fibers_active(void);
/* From the step hook: perhaps the other one's turn. */
void fiber_step(uint64_t own_steps);
/* From the clock: the caller waits, so nothing but the other one can help it. */
void fiber_wait(void);
