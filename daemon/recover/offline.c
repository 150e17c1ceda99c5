/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/recover/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "pool/control.h"
#include "pool/guard.h"
#include "pool/slot.h"
#include "pool/walk.h"

#define SESSION_WAIT_MS 1000 /* whoever takes a slot has the session lock for microseconds */

void offline_control_path(const char *run_dir, uint32_t lane, char *buf, size_t n)
{
	(void)snprintf(buf, n, "%s/control/%u", run_dir, lane);
}

/* The control file as it lies there. It is the domain's own: nothing in it is believed. */
struct found {
	struct control ctl; /* ctl.fd -1: there is none */
	struct ctl_head head;
	bool mapped;
};

static int say(int r, char *why, size_t n, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int say(int r, char *why, size_t n, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (n)
		(void)vsnprintf(why, n, format, ap);
	va_end(ap);
	return r;
}

static int boot_id_read(uint8_t ret[16])
{
	cleanup_fclose FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	char text[64];
	unsigned byte, n = 0;

	if (!f || !fgets(text, sizeof(text), f))
		return -EIO;
	for (const char *p = text; *p && n < 16; p += 2, n++) {
		if (*p == '-')
			p++;
		if (sscanf(p, "%2x", &byte) != 1)
			return -EIO;
		ret[n] = (uint8_t)byte;
	}
	return n == 16 ? 0 : -EIO;
}

static int map_guarded(struct found *f, int fd)
{
	return GUARD(control_map(&f->ctl, fd, &f->head));
}

/* 0 (also when there is none), or a negative errno: something is there and cannot be looked at. */
static int find(struct found *f, const char *run_dir, uint32_t lane)
{
	cleanup_close int fd = -1;
	char path[512];
	struct stat st;

	memset(f, 0, sizeof(*f));
	f->ctl.fd = -1;
	offline_control_path(run_dir, lane, path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	f->mapped = map_guarded(f, fd) == 0;
	if (!f->mapped)
		memset(&f->ctl, 0, sizeof(f->ctl));
	/* locks can be asked for even where the bytes are no control file */
	f->ctl.fd = take_fd(fd);
	return 0;
}

static void found_deinit(struct found *f)
{
	if (f->mapped)
		control_unmap(&f->ctl, true);
	else if (f->ctl.fd >= 0)
		(void)close(f->ctl.fd);
	f->ctl.fd = -1;
	f->mapped = false;
}

static bool fits(const struct found *f, const struct pool_domain *d, const uint8_t boot_id[16])
{
	return f->mapped && f->head.lane == d->lane && f->head.uid == d->uid &&
	       f->head.incarnation == d->incarnation && f->head.ring_size == d->ring_size &&
	       memcmp(f->head.boot_id, boot_id, 16) == 0;
}

static int store_closed(const struct control *c)
{
	/* Release: pairs with slot_take, which reads the state after it has its byte. */
	atomic_store_release(&c->head->state, CTL_CLOSED);
	return 0;
}

/* With the session lock exclusive nobody is between byte and look at the state: 0 or 1 (live). */
static int shut(const struct found *f, bool dry_run)
{
	int r;

	if (f->ctl.fd < 0)
		return 0;
	if (session_lock_exclusive(&f->ctl, SESSION_WAIT_MS) < 0)
		return 1;
	r = slot_any_live(&f->ctl) ? 1 : 0;
	/* A file that is none (cut short, foreign bytes) is refused by control_map for sessions, too. */
	if (r == 0 && f->mapped && !dry_run && GUARD(store_closed(&f->ctl)) < 0)
		r = 0;
	session_unlock(&f->ctl);
	return r;
}

int offline_claim(struct pool *p, uint32_t index, const char *run_dir, bool dry_run, char *why,
		  size_t n)
{
	struct pool_domain d;
	uint8_t boot_id[16];
	struct found f;
	bool same_boot;
	int r;

	if (n)
		why[0] = '\0';
	r = catalog_domain_get(p, index, &d);
	if (r < 0)
		return say(r, why, n, "the pool's catalog cannot be read: %s", strerror(-r));
	r = boot_id_read(boot_id);
	if (r < 0)
		return say(r, why, n, "the boot id cannot be read; is /proc mounted?");
	r = find(&f, run_dir, d.lane);
	if (r < 0)
		return say(r, why, n, "%s/control/%u: %s", run_dir, d.lane, strerror(-r));
	if (shut(&f, dry_run) != 0) {
		found_deinit(&f);
		return say(OFFLINE_LIVE, why, n,
			   "processes of it are running (or one hangs while it attaches): stop the "
			   "database first");
	}
	same_boot = memcmp(d.boot_id, boot_id, sizeof(boot_id)) == 0;
	r = OFFLINE_FREE;
	if (same_boot && !fits(&f, &d, boot_id) && pool_lane_holds(p, &d))
		r = say(OFFLINE_HELD, why, n,
			"there are records of this boot and no control file that fits them: processes "
			"may be running that nobody sees. Stop the database for certain, then: "
			"pmemlogctl recover --apply");
	found_deinit(&f);
	return r;
}

void offline_finish(const char *run_dir, uint32_t lane)
{
	char path[512];

	offline_control_path(run_dir, lane, path, sizeof(path));
	(void)unlink(path);
}

int offline_recover(struct pool *p, uint32_t index, const char *run_dir,
		    const struct recover_options *o, struct json_object **ret_report, char *why,
		    size_t n)
{
	struct pool_domain d;
	uint32_t lane;
	int r;

	r = offline_claim(p, index, run_dir, o->dry_run, why, n);
	if (r < 0)
		return r;
	if (r == OFFLINE_LIVE)
		return -EBUSY;
	/* what --apply overrules: nobody but an administrator can know that nothing is running */
	if (r == OFFLINE_HELD && !o->apply && !o->dry_run)
		return RECOVER_HELD;
	r = catalog_domain_get(p, index, &d);
	if (r < 0)
		return say(r, why, n, "the pool's catalog cannot be read: %s", strerror(-r));
	lane = d.lane;
	r = recover_domain(p, index, o, ret_report);
	if (r < 0)
		return say(r, why, n, "recovery failed: %s", strerror(-r));
	if (o->dry_run)
		return r;
	if (r == RECOVER_CLEAN)
		offline_finish(run_dir, lane);
	else if (catalog_domain_get(p, index, &d) == 0)
		(void)say(0, why, n, "%s", d.reason);
	return r;
}
