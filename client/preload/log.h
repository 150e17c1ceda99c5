/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * One line to the journal's socket, by one datagram that never waits; without a journal it is lost. priority:
 * as syslog's. what and name are put together as "what: name". Raw system calls only, for rare events.
 */
void shim_log(char priority, const char *what, const char *name);
