/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* One world a test, with one file of 8 KiB in it, and what every outcome of a recovery promises. */

#include "tests/recover/world.h"

#define SECOND UINT64_C(1000000000)
#define MARK   "user.pmemlogd.owner"

extern const char *outcome_fs; /* "ext4" or "xfs"; set by main */
extern struct world w;
extern const struct recover_options plain, apply, dry;

int outcome_setup(void **state);
/* Fails where the test has left a descriptor open. */
int outcome_teardown(void **state);

/* Everything that RECOVER_CLEAN promises. */
void assert_clean(void);

/* Quarantined in that row, nothing changed but the attribute; a second run says the same. */
void assert_quarantined(const char *row);

#define T(test) cmocka_unit_test_setup_teardown(test, outcome_setup, outcome_teardown)
