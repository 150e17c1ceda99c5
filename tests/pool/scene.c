/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/pool/scene.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "pool/append.h"
#include "pool/session.h"
#include "pool/slot.h"
#include "pool/space.h"

/* One domain's lane with this process as its session. */
struct writer {
	struct scene *s;
	unsigned domain;
	struct session session;
	struct caller who;
	int lane_fd;
	bool live; /* records count as live ones of the scene */
};

static void writer_open(struct writer *w, struct scene *s, unsigned domain)
{
	struct pool_domain *d = &s->domains[domain];
	struct ctl_head head = { .ring_size = SCENE_RING,
				 .bypass_size = 1 << 20,
				 .reconnect_timeout_ns = 1,
				 .media = CTL_MEDIA_EMULATED };
	struct session *x = &w->session;
	struct pool_error e = { "" };
	int fd = memfd_create("control", MFD_CLOEXEC);

	*w = (struct writer){ .s = s, .domain = domain, .who = { .tid = sys_gettid() } };
	if (pool_lane_create(s->w->pool, d, SCENE_RING, &x->lane, &w->lane_fd, &e) < 0)
		fail_msg("pool_lane_create: %s", e.text);
	s->index[domain] = (uint32_t)catalog_domain_find(s->w->pool, d->uid, d->name);
	/* As the daemon does before the first session (daemon/domain/attach.c); of an earlier boot. */
	memset(d->boot_id, 0xb0, sizeof(d->boot_id));
	d->incarnation = x->lane.incarnation;
	assert_int_equal(catalog_domain_put(s->w->pool, s->index[domain], d), s->index[domain]);
	head.lane = d->lane;
	head.incarnation = x->lane.incarnation;
	assert_int_equal(control_create(&x->ctl, fd, &head, 0, 0), 0);
	atomic_store_release(&x->ctl.head->state, CTL_OPEN);
	x->head_copy = *x->ctl.head;
	x->io = &session_sys_io;
	assert_int_equal(slot_take(&x->ctl, head.incarnation, &x->me), 0);
}

static void writer_close(struct writer *w)
{
	pool_lane_close(&w->session.lane, w->lane_fd);
	control_unmap(&w->session.ctl, true);
}

static uint64_t head_of(struct writer *w)
{
	return control_head(&w->session.ctl).head;
}

static void append(struct writer *w, unsigned file, uint16_t type, uint64_t offset, uint8_t fill,
		   uint32_t length)
{
	static uint8_t bytes[SCENE_BYTES];
	struct scene *s = w->s;
	struct scene_file *f = &s->files[file];
	struct iovec iov = { bytes, length };
	struct append_request r = { .type = type,
				    .flags = type == RECORD_WRITE ? RECORD_INLINE : 0,
				    .offset = offset,
				    .iov = &iov,
				    .iovcnt = 1,
				    .length = length };
	uint64_t before = head_of(w), at;

	memset(bytes, fill, length);
	/* No two bytes next to each other are alike, so that a shifted payload shows. */
	for (uint32_t i = 0; i < length; i++)
		bytes[i] ^= (uint8_t)(i * 7);
	assert_int_equal(append_record(&w->session, &w->who, NULL, f->entry.id, &r, &at), 0);
	if (w->live && at != before) {
		s->records[s->n_records++] = (struct scene_record){ RECORD_PAD, before, 0 };
		assert_true(s->n_records < SCENE_RECORDS);
	}
	if (w->live) {
		s->records[s->n_records++] = (struct scene_record){ type, at, length };
		assert_true(s->n_records < SCENE_RECORDS);
		memcpy(f->without, f->want, SCENE_BYTES);
	}
	if (type == RECORD_WRITE)
		memcpy(f->want + offset, bytes, length);
}

/* What was written so far is durable in the file, and the destager has moved the tail over it. */
static void destage(struct writer *w)
{
	struct ctl_cell cell = control_head(&w->session.ctl);

	lane_tail_write(&w->session.lane, cell.head, cell.chain);
	assert_int_equal(space_publish_tail(&w->session, &w->who, cell.head), 0);
}

/* Three times round the ring, so that nothing of the first lap is left; the tail stands `short_of` bytes
 * before the ring's end. */
static void turn(struct writer *w, unsigned file, uint64_t short_of)
{
	uint64_t goal = 3 * (uint64_t)SCENE_RING - short_of;

	while (head_of(w) < goal) {
		uint64_t left = goal - head_of(w);

		append(w, file, RECORD_WRITE, 0, 0x11,
		       left > 4160 + 64 ? 4096 : (uint32_t)(left - 64));
		destage(w);
	}
	assert_int_equal(head_of(w), goal);
}

static void make_file(struct scene *s, unsigned i, const char *name, uint8_t fill, uint32_t lane)
{
	struct scene_file *f = &s->files[i];
	struct pool_error e = { "" };
	int fd, own;

	(void)snprintf(f->path, sizeof(f->path), "%s/%s", s->w->mount, name);
	fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	memset(f->before, fill, SCENE_BYTES);
	assert_int_equal(write(fd, f->before, SCENE_BYTES), SCENE_BYTES);
	if (register_stamp(s->w->pool, fd, lane, f->path, NULL, &f->entry, &f->index, &own, &e) < 0)
		fail_msg("register_stamp: %s", e.text);
	(void)close(own);
	(void)close(fd);
	memcpy(f->want, f->before, SCENE_BYTES);
	memcpy(f->without, f->before, SCENE_BYTES);
}

/* What is in the lane's past is in the file, too. */
static void settle(struct scene_file *f)
{
	int fd = open(f->path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, f->want, SCENE_BYTES, 0), SCENE_BYTES);
	assert_int_equal(fdatasync(fd), 0);
	(void)close(fd);
	memcpy(f->before, f->want, SCENE_BYTES);
	memcpy(f->without, f->want, SCENE_BYTES);
}

static void fill_one(struct writer *w, enum scene_end end)
{
	struct scene *s = w->s;

	if (end == END_EMPTY)
		return;
	if (end == END_SINGLE) {
		append(w, 0, RECORD_WRITE, 100, 0x20, 300);
		return;
	}
	append(w, 0, RECORD_WRITE, 0, 0x20, 700);
	append(w, 1, RECORD_WRITE, 64, 0x21, 500);
	append(w, 2, RECORD_WRITE, 0, 0x22, 200);
	/* The second file's record is durable in it: the FENCE says so. */
	settle(&s->files[1]);
	append(w, 1, RECORD_FENCE, head_of(w), 0, 0);
	append(w, 0, RECORD_TOUCH, 0, 0, 0);
	append(w, 2, RECORD_UNLINK, 0, 0, 0);
	assert_int_equal(unlink(s->files[2].path), 0);
	s->files[2].gone = true;
	append(w, 1, RECORD_WRITE, 600, 0x23, 64);
	/* Does not fit before the ring's end. */
	append(w, 0, RECORD_WRITE, 500, 0x24, 1500);
	if (end == END_PAD)
		return;
	append(w, 1, RECORD_WRITE, 5000, 0x25, 1);
	if (end == END_FENCE) {
		settle(&s->files[1]);
		append(w, 1, RECORD_FENCE, head_of(w), 0, 0);
	} else if (end == END_UNLINK) {
		append(w, 1, RECORD_UNLINK, 0, 0, 0);
		assert_int_equal(unlink(s->files[1].path), 0);
		s->files[1].gone = true;
	} else {
		append(w, 0, RECORD_WRITE, 1000, 0x26, 900);
	}
}

static uint64_t newest(const struct scene *s)
{
	unsigned n = s->n_records;

	if (n == 0)
		return s->head;
	/* A PAD and its record are one append. */
	return s->records[n - (n > 1 && s->records[n - 2].type == RECORD_PAD ? 2 : 1)].position;
}

static void beat(struct writer *w, enum scene_beat kind)
{
	struct scene *s = w->s;
	uint64_t head = kind == BEAT_HEAD     ? s->head
			: kind == BEAT_BEFORE ? newest(s)
					      : s->tail - 8192;

	lane_beat_write(&w->session.lane, now_realtime_ns(), head);
}

/* `without` of all files but the newest record's is what is wanted anyway. */
static void only_newest(struct scene *s, unsigned newest_file)
{
	for (unsigned i = 0; i < SCENE_FILES; i++)
		if (i != newest_file)
			memcpy(s->files[i].without, s->files[i].want, SCENE_BYTES);
}

void scene_make(struct scene *s, enum scene_beat kind, enum scene_end end)
{
	struct world *world = s->w;
	struct pool_error e = { "" };
	struct writer one, two;

	*s = (struct scene){ .w = world };
	(void)snprintf(s->domains[0].name, sizeof(s->domains[0].name), "one");
	(void)snprintf(s->domains[1].name, sizeof(s->domains[1].name), "two");
	run("rm -rf %s %s", world->pool_dir, world->state_dir);
	if (pool_create(world->pool_dir, world->state_dir, true, false, &e) < 0 ||
	    pool_open(&world->pool, world->pool_dir, world->state_dir, true, false, &e) < 0)
		fail_msg("%s", e.text);
	writer_open(&one, s, 0);
	writer_open(&two, s, 1);
	make_file(s, 0, "one-0", 0x01, s->domains[0].lane);
	make_file(s, 1, "one-1", 0x02, s->domains[0].lane);
	make_file(s, 2, "one-2", 0x03, s->domains[0].lane);
	make_file(s, 3, "two-0", 0x04, s->domains[1].lane);
	turn(&one, 0, 3072);
	settle(&s->files[0]);
	s->tail = head_of(&one);
	one.live = true;
	fill_one(&one, end);
	s->head = head_of(&one);
	only_newest(s, end == END_UNLINK || end == END_FENCE ? 1 : 0);
	beat(&one, kind);
	append(&two, 3, RECORD_WRITE, 0, 0x30, 4000);
	append(&two, 3, RECORD_WRITE, 2000, 0x31, 4000);
	memcpy(s->files[3].without, s->files[3].want, SCENE_BYTES);
	lane_beat_write(&two.session.lane, now_realtime_ns(), head_of(&two));
	writer_close(&one);
	writer_close(&two);
	world->pool = pool_close(world->pool);
}

bool scene_holds(const struct scene_file *f, const uint8_t *bytes)
{
	static uint8_t found[SCENE_BYTES + 1];
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);
	bool same = fd >= 0 && pread(fd, found, sizeof(found), 0) == SCENE_BYTES &&
		    memcmp(found, bytes, SCENE_BYTES) == 0;

	if (fd >= 0)
		(void)close(fd);
	return same;
}

void scene_clear(struct scene *s)
{
	for (unsigned i = 0; i < SCENE_FILES; i++) {
		if (access(s->files[i].path, F_OK) < 0)
			continue;
		if (world_immutable(s->files[i].path))
			world_set_immutable(s->files[i].path, false);
		(void)unlink(s->files[i].path);
	}
}
