/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Does a process use pmemlogd, and if not, why? */

#include "client/ctl/advice.h"
#include "client/ctl/process.h"

struct check_process {
	const char *run_dir;	    /* control/ and bypass/ lie there */
	struct json_object *status; /* the daemon's document; NULL: it cannot be asked */
};

/*
 * A document {pid, program, unit, loaded, library, session, files: [{path, state, reason}], findings}; the
 * caller puts it. A file under a rule is in state lane, bypass, or "no session".
 */
struct json_object *check_process(const struct check_process *c, const struct process *p);
