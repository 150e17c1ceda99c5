/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What we tell systemd (NOTIFY_SOCKET). Nothing happens without it; nothing here fails or blocks for
 * long: it is a datagram. */

#include <stdint.h>

void notify_ready(const char *status);
void notify_reloading(void);
void notify_stopping(void);
void notify_status(const char *status);

/* Start or stop takes longer: at least that much from now on. */
void notify_extend(uint64_t usec);
