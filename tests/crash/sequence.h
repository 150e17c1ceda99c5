/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the processes and the daemon do: short runs enumerated, longer ones by chance. */

#include <stdbool.h>
#include <stdint.h>

/* Number of enumerated runs; seeds below it name them, those above are random ones. */
uint64_t sequence_enumerated(void);
/* Seed of the i-th scripted run: each script again and again, with other lengths and instants. */
uint64_t sequence_scripted(uint64_t i);

/* One run; everything in it follows from the seed. trace: print each step. */
void sequence_run(uint64_t seed, bool trace);

/* What is being done now. */
const char *sequence_op_name(void);
