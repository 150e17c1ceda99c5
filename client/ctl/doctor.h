/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Checks of doctor: each looks at the facts and adds at least one finding under its own id. */

#include "client/ctl/advice.h"
#include "client/ctl/facts.h"

struct doctor_check {
	const char *id;
	void (*look)(const struct facts *f, const char *id, struct json_object *list);
};

/* Each ends with id NULL. */
extern const struct doctor_check doctor_memory[], doctor_system[];
