/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* From a checked request to the domain that answers it. */

#include <stdbool.h>

struct connection;
struct wire_request;

/*
 * Acts on one checked request. fd: the descriptor that came with it, or NULL; *fd becomes -1 when a
 * worker has taken it over. False: the connection is to be freed by the caller.
 */
bool dispatch(struct connection *c, const struct wire_request *request, int *fd);

/* A HELLO of an ABI that is not served: -EPROTO with words; always false (hang up). */
bool dispatch_refuse_version(struct connection *c, const struct wire_request *request);
