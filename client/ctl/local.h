/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The pool without a daemon: what gate and recover do then. */

#include "client/ctl/ctl.h"
#include "pool/dir/catalog.h"

/* USER/NAME or NAME as given on the command line. */
struct domain_name {
	bool any_user;
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
};

/* 0, or an exit code (told): no name of a domain, or no such user. */
int local_name(const char *text, struct domain_name *ret);

/* Index of the next domain of that name at or after `from`, or -ENOENT. *ret is its entry. */
int local_find(struct pool *p, const struct domain_name *name, uint32_t from,
	       struct pool_domain *ret);

/* The only domain of that name: its index; -ENOENT; -EINVAL (several). */
int local_find_one(struct pool *p, const struct domain_name *name, struct pool_domain *ret);

/* True while a daemon can be asked or will be soon: the error of ctl_ask says that nobody listens. */
bool local_nobody_there(int error);

/* Makes state_dir for its owner alone, as tmpfiles.d does, if it is missing: 0 or an exit code (told). */
int local_make_state_dir(const struct config *config);

/*
 * Opens the pool for work without a daemon. *ret NULL and -EBUSY: somebody has it (a daemon that is
 * just starting), nothing told; otherwise 0, or an exit code > 0 (told).
 */
int local_open(struct ctl *c, bool read_only, struct pool **ret);
