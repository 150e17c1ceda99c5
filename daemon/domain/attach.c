/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A domain's lane and control file: made, handed out, let go. Model: tests/models/attach.pml. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/sys.h"
#include "daemon/destage/destage.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"
#include "pool/slot.h"
#include "pool/walk.h"

void control_name(uint32_t lane, char buf[CONTROL_NAME_BYTES])
{
	(void)snprintf(buf, CONTROL_NAME_BYTES, "%u", lane);
}

static int lane_empty(const struct lane *l, uint64_t *ret_tail)
{
	const char *why;
	uint32_t chain;
	struct walk w;
	int r;

	r = walk_find_head(l, &w, &chain, &why);
	if (r < 0)
		return r;
	if (w.position != w.tail)
		return -EBUSY; /* live records: nothing of that may be forgotten */
	*ret_tail = w.tail;
	return 0;
}

/* The domain's lane, empty, in a new incarnation that the catalog knows. */
static int lane_ready(struct domain *d, struct lane *ret, int *ret_fd, uint64_t *ret_tail,
		      struct pool_error *e)
{
	uint64_t ring = config_get(d->set->config, lane_size_bytes) & ~UINT64_C(4095);
	struct domain_set *set = d->set;
	struct pool_domain pd = { .uid = d->uid };
	int index, r;

	(void)snprintf(pd.name, sizeof(pd.name), "%s", d->name);
	index = catalog_domain_find(set->pool, d->uid, d->name);
	if (index >= 0) {
		r = catalog_domain_get(set->pool, (uint32_t)index, &pd);
		if (r < 0)
			return r;
	}
	if (index >= 0 && pd.ring_size == ring) {
		r = pool_lane_open(set->pool, &pd, ret, ret_fd, e);
	} else {
		pthread_mutex_lock(&set->pool_lock);
		r = pool_lane_create(set->pool, &pd, ring, ret, ret_fd, e);
		pthread_mutex_unlock(&set->pool_lock);
		if (r == -ENOSPC && index >= 0) {
			/* No room for one of the new size beside it. */
			log_msg(LOG_WARNING, d->name, "%s: lane %u keeps its size", e->text,
				pd.lane);
			r = catalog_domain_get(set->pool, (uint32_t)index, &pd);
			if (r == 0)
				r = pool_lane_open(set->pool, &pd, ret, ret_fd, e);
		} else if (r == 0) {
			index = catalog_domain_find(set->pool, d->uid, d->name);
		}
	}
	if (r < 0)
		return r;
	if (index < 0)
		r = index;

	/* Another one than its domain's was put in its place meanwhile: decided anew. */
	if (r == 0 && !pool_lane_is(&pd, ret))
		r = -EBADMSG;
	if (r == 0)
		r = GUARD(lane_empty(ret, ret_tail));
	if (r == 0)
		r = pool_lane_renew(set->pool, (uint32_t)index, &pd, ret);
	if (r == 0) {
		/* Durable before the first session: after a crash of ours the control file is
		 * known by boot and incarnation, after a power cut as gone. */
		memcpy(pd.boot_id, set->boot_id, sizeof(pd.boot_id));
		pd.incarnation = ret->incarnation;
		pool_lane_renewed(&pd, ret);
		pd.verdict = VERDICT_NONE;
		memset(pd.reason, 0, sizeof(pd.reason));
		r = catalog_domain_put(set->pool, (uint32_t)index, &pd);
	}
	if (r < 0) {
		pool_lane_close(ret, *ret_fd);
		(void)snprintf(e->text, sizeof(e->text), "lane %u: %s", pd.lane,
			       r == -EBUSY ? "has live records" : strerror(-r));
		return r;
	}
	d->catalog = (uint32_t)index;
	d->lane = pd.lane;
	return 0;
}

static int open_control(const struct domain *d, const char *temporary)
{
	int folder = d->set->control_fd;
	cleanup_close int fd = -1;

	(void)unlinkat(folder, temporary, 0);
	fd = openat(folder, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (d->uid != geteuid() && fchown(fd, (uid_t)d->uid, (gid_t)-1) < 0)
		return -errno;
	if (fchmod(fd, 0600) < 0)
		return -errno;
	return take_fd(fd);
}

static void fill_head(const struct domain *d, const struct lane *l, struct ctl_head *ret)
{
	const struct config *c = d->set->config;
	const struct pool *p = d->set->pool;

	*ret = (struct ctl_head){
		.lane = d->lane,
		.uid = d->uid,
		.incarnation = l->incarnation,
		.ring_size = l->ring_size,
		.bypass_size = config_get(c, bypass_size_bytes),
		.reconnect_timeout_ns = config_get(c, reconnect_timeout_ns),
		.media = p->emulated ? CTL_MEDIA_EMULATED : CTL_MEDIA_FSDAX,
		.images = c->changed_lines,
	};
	memcpy(ret->domain, d->name, sizeof(ret->domain));
	memcpy(ret->pool_uuid, p->sb.uuid, sizeof(ret->pool_uuid));
	memcpy(ret->boot_id, d->set->boot_id, sizeof(ret->boot_id));
	pool_lane_path(p, d->lane, ret->lane_path, sizeof(ret->lane_path));
}

int attach_new(struct domain *d, struct pool_error *e)
{
	char temporary[CONTROL_NAME_BYTES], name[CONTROL_NAME_BYTES];
	int folder = d->set->control_fd;
	struct session s = { .io = &domain_io, .is_daemon = true };
	struct ctl_head head;
	uint64_t tail = 0;
	int lane_fd = -1, fd, r;

	r = lane_ready(d, &s.lane, &lane_fd, &tail, e);
	if (r < 0)
		return r;
	fill_head(d, &s.lane, &head);
	(void)snprintf(temporary, sizeof(temporary), ".new-%u", d->lane);
	fd = open_control(d, temporary);
	r = fd < 0 ? fd : control_create(&s.ctl, fd, &head, tail, 0);
	if (r < 0) {
		if (fd >= 0)
			(void)close(fd);
		goto fail;
	}
	s.head_copy = *s.ctl.head;
	r = slot_take_daemon(&s.ctl, &s.me);
	if (r == 0) {
		atomic_store_relaxed(&s.ctl.hot->daemon_seq, 1);
		atomic_store_relaxed(&s.ctl.hot->daemon_ns, now_monotonic_ns());
		/* Release pairs with slot_take: catalog, lane and everything above stand. */
		atomic_store_release(&s.ctl.head->state, CTL_OPEN);
		control_name(d->lane, name);
		r = renameat(folder, temporary, folder, name) < 0 ? -errno : 0;
	}
	if (r < 0) {
		control_unmap(&s.ctl, true);
		goto fail;
	}
	d->s = s;
	d->lane_fd = lane_fd;
	d->tail = tail;
	d->publish = false;
	attach_publish(d);
	return 0;
fail:
	(void)unlinkat(folder, temporary, 0);
	pool_lane_close(&s.lane, lane_fd);
	(void)snprintf(e->text, sizeof(e->text), "control file of lane %u: %s", d->lane,
		       strerror(-r));
	return r;
}

void attach_publish(struct domain *d)
{
	d->blocked = d->mend = false;
	d->retry_ns = d->tick_ns = 0;
	pthread_mutex_lock(&d->lock);
	d->live_since = 0;
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	d->attached = d->quick = true;
	pthread_mutex_unlock(&d->map_lock);
	beat_set(d, true);
	domain_notify(d);
}

void detach(struct domain *d)
{
	bool stop;

	if (!d->attached)
		return;
	beat_set(d, false);
	pthread_mutex_lock(&d->lock);
	stop = d->stop;
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_lock(&d->map_lock);
	d->attached = d->quick = false;
	d->sleep_word = &d->own_sleep;
	pthread_mutex_unlock(&d->map_lock);
	if (stop)
		log_waits_end(d, -ESHUTDOWN, "the daemon stops");
	else
		log_waits_end(d, -EBUSY, "the domain was let go of");
	logs_forget_all(d);
	/* Nobody else looks at the mappings any more. */
	control_unmap(&d->s.ctl, true);
	pool_lane_close(&d->s.lane, d->lane_fd);
	d->lane_fd = -1;
	d->blocked = d->mend = d->publish = false;
	destage_flushes_end(d, -EBUSY, "the domain was let go of");
	refused_clear(d);
	domain_notify(d);
}

void request_hello(struct domain *d, struct domain_request *r)
{
	struct pool_error e = { "" };
	int rc = 0;

	if (d->state != STATE_OK) {
		request_done(r, -EBUSY, 1, "%s", d->reason);
		return;
	}
	/* All its processes are gone, and we have not looked since: what they wrote and did not live to
	 * log is in the page cache alone. The new one reads it, so it must be durable first. */
	if (d->attached && d->files_end && !d->stepping && !slot_any_live(&d->s.ctl)) {
		(void)sessions_end(d, true);
		if (d->state != STATE_OK) {
			request_done(r, -EBUSY, 1, "%s", d->reason);
			return;
		}
	}
	if (!d->attached)
		rc = attach_new(d, &e);
	if (rc < 0) {
		log_msg(LOG_ERR, d->name, "attach: %s", e.text);
		if (rc == -EBUSY || rc == -EBADMSG || rc == -EFAULT || rc == -EPERM) {
			d->held_ns = 0; /* decided anew at once */
			domain_state_set(d, STATE_HELD, "%s", e.text);
		}
		request_done(r, rc == -ENOSPC ? -ENOSPC : -EBUSY, 1, "%s", e.text);
		return;
	}

	r->lane = d->lane;
	r->incarnation = d->s.lane.incarnation;
	d->grace_ns = now_monotonic_ns() + HELLO_GRACE_NS;
	if (!(r->mode & WIRE_WANT_LANE)) {
		request_done(r, 0, 0, NULL);
		return;
	}
	/* A description of its own: a duplicate would carry the lock on our slot, and keep it after
	 * our death. */
	r->control_fd = fd_reopen(d->s.ctl.fd);
	r->lane_fd = fcntl(d->lane_fd, F_DUPFD_CLOEXEC, 0);
	if (r->control_fd < 0 || r->lane_fd < 0) {
		if (r->control_fd >= 0)
			(void)close(r->control_fd);
		if (r->lane_fd >= 0)
			(void)close(r->lane_fd);
		r->control_fd = r->lane_fd = -1;
		request_done(r, -EMFILE, 1, "too many open files: raise the daemon's limit");
		return;
	}
	request_done(r, 0, 0, NULL);
}
