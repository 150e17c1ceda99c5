/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cases.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "pool/dir/catalog.h"

void set_age(struct env *e, uint64_t ns)
{
	atomic_store_release(&e->config.destage_age_ns, ns);
}

void wait_trimmed(struct env *e, const char *domain)
{
	env_wait(3000, env_number(e, domain, "live_bytes") == 0);
}

struct lane_beat beat_of(struct env *e, uint32_t lane)
{
	char path[512];
	struct lane_beat b = { .time_ns = 0 };
	int fd;

	(void)snprintf(path, sizeof(path), "%s/lane-%06u", e->config.pool, lane);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(pread(fd, &b, sizeof(b), offsetof(struct lane_header, beat)) ==
		    (ssize_t)sizeof(b));
	(void)close(fd);
	return b;
}

void assert_rewrite_is_known(struct env *e, unsigned n)
{
	struct pool_file f = { .used = 0 };
	struct stat st;
	uint64_t ctime_ns;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		if (catalog_file_get(e->pool, i, &f) == 0 && f.ino == e->ino[n])
			break;
	assert_int_equal(fstat(e->fd[n], &st), 0);
	ctime_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
	assert_true(f.rewrite_until_ns >= ctime_ns);
}

void assert_all_gone(struct env *e, uint32_t lane)
{
	env_wait(3500, !env_control_there(e, lane));
	assert_false(env_marked(e, 0));
	assert_int_equal(env_catalog_files(e), 0);
	assert_true(env_state_is(e, "d", "ok"));
	assert_int_equal(env_ask(e, DOMAIN_GATE, "d", -1, 0).status, 0);
}

void skip_under_tsan(void)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
}
