/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What stands between a domain and its recovery: an old control file, and sessions that may still
 * live. Used by the daemon for a domain that it does not serve, and by pmemlogctl without a daemon.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/recover/recover.h"

/* Path of a lane's control file, <run_dir>/control/LANE (decimal), into buf. */
void offline_control_path(const char *run_dir, uint32_t lane, char *buf, size_t n);

enum offline_state {
	OFFLINE_FREE = 0, /* no session lives and none can begin: recover_domain may run */
	OFFLINE_LIVE = 1, /* sessions live, or one is just beginning; nothing was changed */
	OFFLINE_HELD = 2, /* same boot, live records, no control file that fits them */
};

/*
 * Makes sure that no session of a domain lives and that none can begin: session lock exclusive, all
 * bytes seen free, then the control file marked closed (release; pairs with slot_take). The closed
 * file stays at its path until offline_finish, so that a recovery cut short in this boot is taken up
 * again. index: of the catalog's domain. dry_run: looks only, closes nothing. The caller has
 * no session of the domain itself, holds the pool for writing and has called guard_install.
 * Returns enum offline_state with words in why (n bytes), or a negative errno.
 */
int offline_claim(struct pool *p, uint32_t index, const char *run_dir, bool dry_run, char *why,
		  size_t n);

/* After a recovery that ended clean: removes the closed control file, if it is there. */
void offline_finish(const char *run_dir, uint32_t lane);

/*
 * offline_claim, recover_domain and offline_finish in a row. Returns enum recover_outcome with words in
 * why, -EBUSY when sessions live (why names the domain), or a negative errno.
 */
int offline_recover(struct pool *p, uint32_t index, const char *run_dir,
		    const struct recover_options *o, struct json_object **ret_report, char *why,
		    size_t n);
