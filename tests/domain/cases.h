/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The tests of domain-tests, by what they are about, and what they look at in common. */

#include "env.h"

#include "abi/lane.h"

/* A test with a pool, a daemon and a folder of its own. */
#define CASE(name) cmocka_unit_test_setup_teardown(name, env_setup, env_teardown)

/* Each runs the tests of its file that DOMAIN_TEST names, or all; returns how many failed. */
int serves_run(void);
int life_run(void);
int failing_run(void);
int hostile_run(void);
int bypass_run(void);
int beat_run(void);
int asleep_run(void);

/* How old a record may grow before it is destaged; the daemon takes it over as after a reload. */
void set_age(struct env *e, uint64_t ns);
/* Fails the test when the domain still has live records after 3 s. */
void wait_trimmed(struct env *e, const char *domain);
/* The heartbeat as it stands in the lane's file. */
struct lane_beat beat_of(struct env *e, uint32_t lane);
/* Recovery would take our own change of file[n] for a stranger's otherwise. */
void assert_rewrite_is_known(struct env *e, unsigned n);
/* Domain "d" has ended: control file, mark and catalog's entries go within 3.5 s, and its gate is open. */
void assert_all_gone(struct env *e, uint32_t lane);
/* TSan's run-time faults inside its own lock on a word that is not there, and does not come back. */
void skip_under_tsan(void);
