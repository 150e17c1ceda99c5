/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What all connections of one uid may use up together. Event loop's thread. */

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer;

#define PEER_CLOSING_MAX 8u /* descriptors that hang in close(), of one uid; picked */

/* Counts a connection in. NULL: too many of that uid (logged at the first), or no memory. */
struct peer *peer_add(struct server *s, uint32_t uid);
void peer_remove(struct server *s, struct peer *p);

/* False while PEER_CLOSING_MAX descriptors of that uid still hang in close(). */
bool peer_may_pass(const struct peer *p);

/* Frees all that no thread uses any more. */
void peers_deinit(struct server *s);
