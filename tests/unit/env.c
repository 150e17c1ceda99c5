/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "env.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "pool/append.h"
#include "pool/ops.h"
#include "pool/space.h"

/* Behind the lane: records that would run over its end can be planted whole. */
#define BEHIND 4096u

struct caller env_caller(void)
{
	return (struct caller){ .tid = sys_gettid() };
}

void env_make(struct env *e, uint64_t ring_size)
{
	size_t bytes = LANE_HEADER_BYTES + ring_size;
	struct ctl_head head = { .lane = 7,
				 .incarnation = ENV_INCARNATION,
				 .ring_size = ring_size,
				 .bypass_size = 1 << 20,
				 .reconnect_timeout_ns = 200000000,
				 .media = CTL_MEDIA_EMULATED,
				 .images = 1 };
	void *base;
	int fd;

	pool_ops_select();
	*e = (struct env){ .who = env_caller() };
	e->lane_fd = memfd_create("lane", MFD_CLOEXEC);
	assert_true(e->lane_fd >= 0);
	assert_int_equal(ftruncate(e->lane_fd, (off_t)(bytes + BEHIND)), 0);
	base = mmap(NULL, bytes + BEHIND, PROT_READ | PROT_WRITE, MAP_SHARED, e->lane_fd, 0);
	assert_true(base != MAP_FAILED);
	assert_int_equal(lane_format(&e->s.lane, base, bytes, 7, ring_size, ENV_INCARNATION), 0);

	fd = memfd_create("control", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(control_create(&e->s.ctl, fd, &head, 0, 0), 0);
	atomic_store_release(&e->s.ctl.head->state, CTL_OPEN);
	e->s.head_copy = *e->s.ctl.head;
	assert_int_equal(slot_take(&e->s.ctl, ENV_INCARNATION, &e->s.me), 0);
}

void env_free(struct env *e)
{
	munmap(e->s.lane.base, e->s.lane.map_bytes + BEHIND);
	close(e->lane_fd);
	control_unmap(&e->s.ctl, true);
}

struct control env_other(const struct env *e)
{
	struct control c;
	struct ctl_head head;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", e->s.ctl.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(control_map(&c, fd, &head), 0);
	return c;
}

struct ctl_file *env_file(struct env *e, unsigned i)
{
	struct ctl_file *f = &e->s.ctl.files[i];

	f->state = FILE_LANE;
	atomic_store_release(&f->id, (uint64_t)i + 1);
	return f;
}

uint8_t env_byte(uint64_t offset, uint32_t i)
{
	return (uint8_t)((offset + i) * 31 + (offset >> 8) + 1);
}

int env_write(struct env *e, struct ctl_file *f, uint64_t offset, uint32_t n,
	      uint64_t *ret_position)
{
	static _Thread_local uint8_t buffer[1 << 17];
	struct iovec iov = { buffer, n };
	struct append_request r = { .type = RECORD_WRITE,
				    .flags = RECORD_INLINE,
				    .offset = offset,
				    .iov = &iov,
				    .iovcnt = 1,
				    .length = n };

	for (uint32_t i = 0; i < n; i++)
		buffer[i] = env_byte(offset, i);
	return append_record(&e->s, &e->who, f, 1, &r, ret_position);
}

void env_trim(struct env *e, uint64_t tail, uint32_t chain)
{
	lane_tail_write(&e->s.lane, tail, chain);
	assert_int_equal(space_publish_tail(&e->s, &e->who, tail), 0);
}

int env_fork(void (*body)(void *), void *arg)
{
	int ready[2], pid;
	char c = 'x';

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* a test that fails leaves nobody behind */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		body(arg);
		(void)!write(ready[1], &c, 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

void env_kill(int pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

uint64_t env_ms(void)
{
	return now_monotonic_ns() / 1000000;
}

void env_sleep_ms(unsigned ms)
{
	usleep(ms * 1000);
}
