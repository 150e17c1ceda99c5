/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * The simulator's clock: this program defines clock_gettime, so the product's times come from here.
 * CLOCK_REALTIME stands but for clock_pass; CLOCK_MONOTONIC jumps with each look, so that no wait of
 * the product takes real time: a dead owner is looked at in the first round.
 */

#include <stdint.h>

void clock_reset(void);
void clock_pass(uint64_t ns);
/* The machine's own monotonic clock, for progress and limits. */
uint64_t clock_real_ns(void);
