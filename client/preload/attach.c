/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Model of taking and closing: tests/models/attach.pml. */
#include "client/preload/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "client/preload/config.h"
#include "client/preload/desc.h"
#include "client/preload/link.h"
#include "client/preload/log.h"
#include "pool/ops.h"
#include "pool/sim.h"
#include "pool/slot.h"

#define SLOT_TRIES 5 /* of up to a second each */

/* A session is filled under the attach lock and published by `count`; never unmapped, since another
 * thread may be inside. Only as many as control files were closed under us: a handful. */
static struct session sessions[SHIM_SESSIONS];
static uint32_t count; /* atomic: release by publish, acquire by readers */

struct session *attach_session_at(uint32_t index)
{
	return &sessions[index];
}

int attach_newest(void)
{
	return (int)atomic_load_acquire(&count) - 1;
}

static int slot_locked(uint32_t index)
{
	struct session *s = &sessions[index];
	uint32_t bit = 1u << index;
	struct holder me = { 0 };
	int r = -EAGAIN;

	if (atomic_load_acquire(&page->slots) & bit)
		return 0;
	/* -EAGAIN: the daemon looks whether the domain is empty, for an instant at a time. */
	for (int i = 0; i < SLOT_TRIES; i++) {
		r = slot_take(&s->ctl, s->head_copy.incarnation, &me);
		if (r != -EAGAIN)
			break;
	}
	if (r < 0)
		return r;
	s->me = me;
	/* Release: pairs with the look in attach_slot; the holder is whole. */
	atomic_store_release(&page->slots, page->slots | bit);
	return 0;
}

int attach_slot(uint32_t index, const struct caller *who)
{
	int r;

	if (atomic_load_acquire(&page->slots) & (1u << index))
		return 0;
	r = page_lock(who, true);
	if (r < 0)
		return r;
	r = slot_locked(index);
	page_unlock();
	return r;
}

/* Maps the lane and checks that it is the one which the control file means. Closes fd. */
static int map_lane(struct session *s, int fd)
{
	uint64_t bytes = LANE_HEADER_BYTES + s->head_copy.ring_size;
	int flags =
		s->head_copy.media == CTL_MEDIA_FSDAX ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
	struct stat st;
	long base;
	int r;

	/* A shorter file would be a SIGBUS later on. */
	r = (int)sys_call2(SYS_fstat, fd, &st);
	if (r == 0 && (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < bytes))
		r = -EINVAL;
	/* Populated: no commit pays for the first touch of a page. Without MAP_SYNC on fsdax the stores
	 * would not be durable: then no session at all. */
	base = r < 0 ? r
		     : sys_call6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
				 flags | MAP_POPULATE, fd, 0);
	if (base >= 0 || base <= -4096)
		r = sim_map((uint8_t *)base, (size_t)bytes, fd);
	(void)sys_call1(SYS_close, fd);
	if (base < 0 && base > -4096)
		return (int)base;
	(void)sys_call3(SYS_madvise, base, bytes, MADV_DONTDUMP);
	if (r == 0)
		r = lane_attach(&s->lane, (void *)base, (size_t)bytes);
	if (r == 0 && (s->lane.number != s->head_copy.lane ||
		       s->lane.incarnation != s->head_copy.incarnation ||
		       s->lane.ring_size != s->head_copy.ring_size))
		r = -ESTALE;
	if (r < 0) {
		sim_unmap((const uint8_t *)base);
		(void)sys_call2(SYS_munmap, base, bytes);
	}
	return r;
}

static bool same_inode(int a, int b)
{
	struct stat sa, sb;

	return sys_call2(SYS_fstat, a, &sa) == 0 && sys_call2(SYS_fstat, b, &sb) == 0 &&
	       sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* A control file that this process has already: closing the second descriptor of it would drop our
 * slot, so it is kept open, hidden, for ever. */
static int known_control(int control)
{
	for (int i = attach_newest(); i >= 0; i--)
		if (same_inode(sessions[i].ctl.fd, control))
			return i;
	return -1;
}

static int media_known(uint32_t media)
{
	return media == CTL_MEDIA_EMULATED || media == CTL_MEDIA_FSDAX;
}

/* Takes both descriptors over. Index of the new session, or a negative errno. */
static int publish(int control, int lane)
{
	uint32_t index = atomic_load_relaxed(&count); /* under the lock */
	struct session *s = &sessions[index];
	int known, r;

	/* Not in the constructor: CPUID is slow in a virtual machine, and most programs never come here. The
	 * first session is not published yet, so nobody stores meanwhile. */
	if (index == 0)
		pool_ops_select();
	control = desc_hide(control);
	if (control < 0) {
		(void)sys_call1(SYS_close, lane);
		return control;
	}
	known = known_control(control);
	if (known >= 0) {
		(void)sys_call1(SYS_close, lane);
		r = slot_locked((uint32_t)known);
		return r < 0 ? r : known;
	}
	r = index == SHIM_SESSIONS ? -EMFILE : control_map(&s->ctl, control, &s->head_copy);
	if (r < 0) {
		(void)sys_call1(SYS_close, lane);
		desc_unhide_close(control);
		return r;
	}
	if (s->head_copy.uid != (uint32_t)sys_call0(SYS_geteuid) ||
	    strcmp(s->head_copy.domain, config.domain) != 0 || !media_known(s->head_copy.media)) {
		(void)sys_call1(SYS_close, lane);
		r = -EPROTO;
	} else {
		r = map_lane(s, lane);
	}
	if (r == 0) {
		s->io = &session_sys_io;
		s->is_daemon = false;
		/* A bit that a session which failed below left from an earlier try. */
		atomic_store_release(&page->slots, page->slots & ~(1u << index));
		r = slot_locked(index);
	}
	if (r < 0) {
		control_unmap(&s->ctl, false);
		desc_unhide_close(control);
		return r;
	}
	/* Release: pairs with attach_newest; the session is whole. */
	atomic_store_release(&count, index + 1);
	return (int)index;
}

static int attach_by_daemon(void)
{
	struct wire_hello_reply hello = { .text = "" };
	int fds[2];
	int r;

	link_close(); /* the descriptors come with a connection's first answer */
	r = link_hello(true, &hello, fds);
	if (r < 0) {
		hello.text[sizeof(hello.text) - 1] = '\0';
		if (hello.text[0])
			shim_log('4', "pmemlogd refuses", hello.text);
		return r;
	}
	if (fds[0] < 0 || fds[1] < 0) {
		if (fds[0] >= 0)
			(void)sys_call1(SYS_close, fds[0]);
		link_close();
		return -EPROTO;
	}
	return publish(fds[0], fds[1]);
}

int attach_locked(void)
{
	int index = attach_newest();
	int control, lane, r;

	if (index >= 0) {
		r = slot_locked((uint32_t)index);
		if (r != -ESTALE)
			return r < 0 ? r : index;
	}
	r = attach_by_daemon();
	/* Closed while we looked: the daemon has made a new one by now. */
	if (r == -ESTALE)
		r = attach_by_daemon();
	if (r != -ETIMEDOUT)
		return r;
	r = attach_find_control(&control, &lane);
	return r < 0 ? r : publish(control, lane);
}

int attach_connection(uint32_t index)
{
	const struct session *s = &sessions[index];
	struct wire_hello_reply hello;
	int fds[2];
	int r = link_hello(false, &hello, fds);

	if (r != 0)
		return r < 0 ? r : 0;
	if (hello.lane != s->head_copy.lane || hello.incarnation != s->head_copy.incarnation) {
		link_close();
		return -ESTALE;
	}
	return 0;
}
