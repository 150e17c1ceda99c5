/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that a session wanted to register and could not: its process writes them to the disk, with the
 * syncs that it asked for. They have no entry in the control file, and status must not hide them.
 */

#include <stdio.h>
#include <string.h>

#include "daemon/domain/internal.h"

static struct refused *find(struct domain *d, const char *path)
{
	for (uint32_t i = 0; i < d->refused_n; i++)
		if (strcmp(d->refused[i].path, path) == 0)
			return &d->refused[i];
	return NULL;
}

void refused_add(struct domain *d, const char *path, const char *why)
{
	struct refused *at;

	pthread_mutex_lock(&d->lock);
	at = find(d, path);
	if (!at && d->refused_n < REFUSED_MAX)
		at = &d->refused[d->refused_n++];
	if (at) {
		(void)snprintf(at->path, sizeof(at->path), "%s", path);
		(void)snprintf(at->why, sizeof(at->why), "%s", why);
	}
	pthread_mutex_unlock(&d->lock);
}

void refused_drop(struct domain *d, const char *path)
{
	struct refused *at;

	pthread_mutex_lock(&d->lock);
	at = find(d, path);
	if (at)
		*at = d->refused[--d->refused_n];
	pthread_mutex_unlock(&d->lock);
}

void refused_clear(struct domain *d)
{
	pthread_mutex_lock(&d->lock);
	d->refused_n = 0;
	pthread_mutex_unlock(&d->lock);
}
