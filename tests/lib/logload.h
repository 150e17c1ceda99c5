/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
#include <pmemlogd.h>

/* Says it and ends the program. */
void die(const char *what, int r) __attribute__((noreturn));
struct pmemlogd_log *open_log(char **argv, unsigned flags);
struct pmemlogd *the_connection(void);

/* api.c */
int do_api(char **argv);

/* safety.c */
int do_safety(char **argv);
