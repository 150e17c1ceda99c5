/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Destaging: make live records durable in their backing files, then advance the tail. In the domain's
 * worker thread only.
 */

#include "daemon/domain/internal.h"

/*
 * Makes a step if one is due (age, a quarter of the ring, waiting writers, a flush, a failed file's
 * next try) and answers the flushes that are done. 0, -EFAULT or -EBADMSG (control file not usable).
 */
int destage_run(struct domain *d);

/*
 * One step: notes H = head, makes every file with live records below it durable, persists the tail,
 * publishes the space. 0: tail is H. -EAGAIN: some file fails (told in last_error; others were
 * synced, nothing was trimmed). -EFAULT, -EBADMSG as above.
 */
int destage_step(struct domain *d);

/* The last step of a domain whose sessions are over: everything synced with an fsync, what dead
 * owners left is put right. 0, -EAGAIN, -EFAULT, -EBADMSG. */
int destage_finish(struct domain *d);

/* Makes the records of all native logs below *to durable in their segments. 0, -EAGAIN (one fails; told in
 * last_error), -EFAULT, -EBADMSG. */
int destage_logs(struct domain *d, const struct ctl_cell *to);

/*
 * How to sleep: the value for hot->asleep (1: till the first record; 2: till ret_until or a quarter
 * of the ring is used; the worker has 3 of its own: till the next record), or 0: not on that word, just until *ret_until (CLOCK_MONOTONIC).
 */
uint32_t destage_sleep(struct domain *d, uint64_t *ret_until);

/* True if there is a reason not to fall asleep with that value. */
bool destage_news(struct domain *d, uint32_t mode);

/* FLUSH: answered when everything below today's head is durable, or when that keeps failing. */
void destage_flush(struct domain *d, struct domain_request *r);
/* Answers all waiting flushes; why may be NULL. */
void destage_flushes_end(struct domain *d, int status, const char *why);
