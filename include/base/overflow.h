/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Checked arithmetic for sizes that come from outside: true when the result does not fit. */
#define add_overflow(a, b, ret_sum)	__builtin_add_overflow((a), (b), (ret_sum))
#define mul_overflow(a, b, ret_product) __builtin_mul_overflow((a), (b), (ret_product))

/* Rounds up to a power of two. The caller has made sure that it does not wrap. */
#define align_up(v, a) (((v) + ((a)-1)) & ~((__typeof__(v))(a)-1))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define min_of(a, b)  ((a) < (b) ? (a) : (b))
#define max_of(a, b)  ((a) > (b) ? (a) : (b))
