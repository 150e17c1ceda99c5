/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/guard.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env.h"
#include "pool/walk.h"

static int read_at(const volatile uint8_t *p)
{
	return *p;
}

/* A page that is not there any more: the file was cut. */
static volatile uint8_t *cut_page(void)
{
	int fd = memfd_create("cut", MFD_CLOEXEC);
	void *p;

	assert_int_equal(ftruncate(fd, 4096), 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(ftruncate(fd, 0), 0);
	close(fd);
	return p;
}

static void survives(void **state)
{
	volatile uint8_t *p = cut_page();
	uint8_t good = 42;

	(void)state;
	assert_int_equal(guard_install(), 0);
	assert_int_equal(GUARD(read_at(&good)), 42);
	/* more than once: the signal is not left blocked */
	assert_int_equal(GUARD(read_at(p)), -EFAULT);
	assert_int_equal(GUARD(read_at(p)), -EFAULT);
	assert_int_equal(GUARD(read_at(p)), -EFAULT);
	assert_null(guard_top);
}

static int inner(volatile uint8_t *p)
{
	int r = GUARD(read_at(p));

	return r == -EFAULT ? read_at(p) : r; /* faults again, in the outer guard's care */
}

static void nests(void **state)
{
	volatile uint8_t *p = cut_page();

	(void)state;
	assert_int_equal(guard_install(), 0);
	assert_int_equal(GUARD(inner(p)), -EFAULT);
	assert_null(guard_top);
}

/* Outside a guard a SIGBUS ends the process, as without us. */
static void passes_on(void **state)
{
	volatile uint8_t *p = cut_page();
	int status, pid = fork();

	(void)state;
	if (pid == 0) {
		(void)guard_install();
		_exit(read_at(p));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
#ifdef __SANITIZE_ADDRESS__
	assert_true(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
#else
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
#endif
}

/* A lane cut under the walk: an answer, not a death. */
static void lane_cut(void **state)
{
	struct env e;
	struct walk w;
	uint32_t chain;
	const char *why = NULL;

	(void)state;
	assert_int_equal(guard_install(), 0);
	env_make(&e, 65536);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(env_write(&e, NULL, i, 200, NULL), 0);
	assert_int_equal(GUARD(walk_find_head(&e.s.lane, &w, &chain, &why)), 0);
	assert_int_equal(ftruncate(e.lane_fd, 8192), 0);
	assert_int_equal(GUARD(walk_find_head(&e.s.lane, &w, &chain, &why)), -EFAULT);
	env_free(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survives),
		cmocka_unit_test(nests),
		cmocka_unit_test(passes_on),
		cmocka_unit_test(lane_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
