/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>

/* How often this process has forked, as far as we saw. Relaxed: a late look keeps a token longer. */
uint32_t fork_count(void);
