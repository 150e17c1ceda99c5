/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The end of the sessions' time, and what administrators ask of a domain without sessions. Model of the end:
 * tests/models/attach.pml.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "daemon/recover/recover.h"
#include "pool/dir/register.h"
#include "pool/guard.h"
#include "pool/slot.h"

static int mark_closed(struct domain *d)
{
	/* Release pairs with slot_take: whoever takes a byte from now on lets go of it. */
	atomic_store_release(&d->s.ctl.head->state, CTL_CLOSED);
	return 0;
}

/* No session lives and none can begin any more: 0. -EAGAIN: one lives or is taking a slot. */
static int shut(struct domain *d)
{
	bool users;
	int r;

	pthread_mutex_lock(&d->lock);
	/* Who uses logs by messages has no slot; one whose message waits is there all the same. */
	users = (d->log_users > 0 || log_waits_any(d)) && !d->stop;
	pthread_mutex_unlock(&d->lock);
	if (users || slot_any_live(&d->s.ctl))
		return -EAGAIN;
	r = session_lock_exclusive(&d->s.ctl, 50);
	if (r < 0)
		return -EAGAIN;
	r = slot_any_live(&d->s.ctl) ? -EAGAIN : GUARD(mark_closed(d));
	session_unlock(&d->s.ctl);
	return r;
}

/*
 * The event loop appends without a slot. What it has appended is there before the last step takes head; from now
 * on its appends come to us, and find a domain that is over.
 */
static void quick_end(struct domain *d)
{
	pthread_mutex_lock(&d->map_lock);
	d->quick = false;
	pthread_mutex_unlock(&d->map_lock);
}

static int incarnation_end(struct domain *d)
{
	struct pool *p = d->set->pool;
	struct pool_domain pd;
	int r = catalog_domain_get(p, d->catalog, &pd);

	if (r == 0)
		r = pool_lane_renew(p, d->catalog, &pd, &d->s.lane);
	if (r < 0)
		return r;
	pool_lane_renewed(&pd, &d->s.lane);
	r = catalog_domain_put(p, d->catalog, &pd);
	return r < 0 ? r : 0;
}

bool sessions_end(struct domain *d, bool at_once)
{
	struct domain_request *flushes;
	int r;

	if (!at_once && now_monotonic_ns() < d->grace_ns)
		return false; /* it has been attached and is about to take its slot */
	r = shut(d);
	if (r == -EAGAIN)
		return false;

	quick_end(d);
	/* From here on the domain is ours alone. */
	if (r == 0)
		r = destage_finish(d);
	beat_set(d, false);
	if (r == 0)
		r = registry_release_all(d);
	if (r == 0)
		r = logs_release_all(d);
	if (r == 0)
		r = incarnation_end(d);
	if (r == 0) {
		destage_flushes_end(d, 0, NULL);
		detach(d);
		control_remove(d);
		log_msg(LOG_INFO, d->name, "last session ended: all is in the files");
		return true;
	}

	/* The closed control file stays until recovery has brought it to an end: it tells the next
	 * daemon that these records have no sessions. */
	log_msg(LOG_WARNING, d->name, "last session ended and could not be destaged: recovery");
	flushes = d->flushes;
	d->flushes = NULL;
	detach(d);
	registry_forget_all(d);
	(void)domain_recover(d, false, false, NULL);
	/* Who asked for a flush before the end hears what has become of it, not that we let go. */
	d->flushes = flushes;
	if (d->state == STATE_OK)
		destage_flushes_end(d, 0, NULL);
	else
		destage_flushes_end(d, -EBUSY, d->reason);
	return true;
}

void request_gate(struct domain *d, struct domain_request *r)
{
	if (d->attached && !sessions_end(d, true)) {
		request_done(r, -EBUSY, 1, "database still running");
		return;
	}
	/* A quarantine stands; but a file that could not be made immutable then (read-only, not mounted)
	 * may be within reach now. */
	if (d->state == STATE_HELD || d->state == STATE_QUARANTINED)
		domain_decide(d);
	if (d->attached)
		request_done(r, -EBUSY, 1, "database still running");
	else if (d->state != STATE_OK)
		request_done(r, -EBUSY, 1, "%s", d->reason);
	else
		request_done(r, 0, 0, NULL);
}

static int map_and_close(struct control *c)
{
	struct ctl_head head;
	int r = control_map(c, c->fd, &head);

	if (r < 0)
		return r;
	/* Release pairs with slot_take: whoever takes a byte from now on lets go of it. */
	atomic_store_release(&c->head->state, CTL_CLOSED);
	control_unmap(c, false);
	return 0;
}

/*
 * A held domain has no mapping; its processes may live all the same, or a child that has not taken its
 * slot yet. close: with none there, none may begin any more.
 */
static bool control_live(const struct domain *d, bool close_it)
{
	struct control c = { .fd = -1 };
	char name[CONTROL_NAME_BYTES];
	int fd;
	bool live;

	control_name(d->lane, name);
	fd = openat(d->set->control_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	c.fd = fd;
	if (close_it && session_lock_exclusive(&c, 1000) < 0) {
		(void)close(fd);
		return true; /* one is taking a slot */
	}
	live = slot_any_live(&c);
	/* What is no control file (cut short, foreign bytes) is refused by control_map for sessions, too. */
	if (!live && close_it)
		(void)GUARD(map_and_close(&c));
	(void)close(fd); /* and the lock with it */
	return live;
}

static void adopt(struct domain *d, struct domain_request *r)
{
	struct pool_error e = { "" };
	int rc = register_adopt(d->set->pool, r->fd, &e);

	if (rc < 0)
		request_done(r, rc, 1, "%s", *e.text ? e.text : strerror(-rc));
	else
		request_done(r, 0, 0, NULL);
}

void request_recover(struct domain *d, struct domain_request *r)
{
	int rc;

	if (r->mode == WIRE_RECOVER_ADOPT) {
		adopt(d, r);
		return;
	}
	if (d->attached)
		(void)sessions_end(d, true);
	if (d->attached ||
	    (d->catalog != UINT32_MAX && control_live(d, r->mode != WIRE_RECOVER_DRY_RUN))) {
		request_done(r, -EBUSY, 1, "database still running: stop it first");
		return;
	}
	if (d->catalog == UINT32_MAX) {
		request_done(r, 0, 0, "nothing is left over");
		return;
	}
	switch (r->mode) {
	case WIRE_RECOVER_DRY_RUN:
	case WIRE_RECOVER_APPLY:
		rc = domain_recover(d, r->mode == WIRE_RECOVER_DRY_RUN,
				    r->mode == WIRE_RECOVER_APPLY, &r->report);
		break;
	case WIRE_RECOVER_DISCARD:
		rc = recover_discard(d->set->pool, d->catalog, &r->report);
		if (rc >= 0)
			domain_decide(d);
		break;
	default:
		rc = -EINVAL;
	}
	if (rc == 0)
		request_done(r, 0, 0, NULL);
	else if (rc > 0)
		request_done(r, -EBUSY, 1, "%s", d->reason);
	else
		request_done(r, rc, 1, "%s", strerror(-rc));
}
