/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* The listening socket: handed over by systemd, or our own. */

#include <stdbool.h>

struct server;

/*
 * The socket that systemd handed over. 1 and *ret_fd; 0: none was; -EINVAL with words in ret_error: it
 * is not exactly one listening SOCK_SEQPACKET unix socket. Removes LISTEN_FDS from the environment.
 */
int listener_inherited(int *ret_fd, char *ret_error, unsigned n);

/* True if the socket at fd is bound in that folder. */
bool listener_lies_in(int fd, const char *folder);

/*
 * Makes and binds a socket at path, mode 0666. What is left there of an earlier run is removed: the
 * caller holds the pool's lock, so nobody serves it. Something else than a socket stays, -EEXIST.
 * Returns 0 and *ret_fd, or a negative errno with words in ret_error.
 */
int listener_open(const char *path, int *ret_fd, char *ret_error, unsigned n);

/* Accepts into s; called by server_new. Returns 0 or a negative errno. */
int listener_start(struct server *s);

/* Stops accepting and closes; the path is removed if it is our own. */
void listener_stop(struct server *s);
