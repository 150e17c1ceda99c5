/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What keeps the library out of a unit's database, and what has to be known before it goes in. */

#include "client/ctl/advice.h"
#include "client/ctl/unit.h"

/* Faults: with them the library would not be loaded, or take no file. Notes: what somebody has to do. */
void blockers_find(const struct unit *u, struct json_object *list);

/* The same for a program file (without the root): file capabilities, set-id bits. */
void blockers_program(const char *root, const char *program, struct json_object *list);
