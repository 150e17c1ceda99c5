/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Who may do what: names of the configuration turned into numbers once, so that no look-up (which may
 * ask a directory server) happens while a client waits. */

#include <stdbool.h>
#include <sys/types.h>

struct config;

struct access_list {
	bool all;
	unsigned n;
	unsigned *ids; /* owned */
};

struct access {
	struct access_list users, groups;
};

/* Builds from allow_users and allow_groups; what was there before is freed. A name that nobody has is
 * logged and left out. Returns 0 or -ENOMEM (then nothing has changed). May ask NSS. */
int access_build(struct access *a, const struct config *c);
void access_deinit(struct access *a);

/* True for root and for the user that we run as. */
bool access_is_admin(uid_t uid);

/* True if a peer with these ids may use pmemlogd at all; admins always. */
bool access_allows(const struct access *a, uid_t uid, gid_t gid, const gid_t *groups, unsigned n);
