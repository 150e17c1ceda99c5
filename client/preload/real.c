/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/preload/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/sys.h"

long errno_result(long raw)
{
	if (likely(raw >= 0 || raw < -4095))
		return raw;
	errno = (int)-raw;
	return -1;
}

#define REAL1(name, result, nr, ta)                                  \
	static result raw_##name(ta a)                               \
	{                                                            \
		return (result)errno_result(sys_call1(nr, (long)a)); \
	}
#define REAL2(name, result, nr, ta, tb)                           \
	static result raw_##name(ta a, tb b)                      \
	{                                                         \
		return (result)errno_result(sys_call2(nr, a, b)); \
	}
#define REAL3(name, result, nr, ta, tb, tc)                          \
	static result raw_##name(ta a, tb b, tc c)                   \
	{                                                            \
		return (result)errno_result(sys_call3(nr, a, b, c)); \
	}
#define REAL4(name, result, nr, ta, tb, tc, td)                         \
	static result raw_##name(ta a, tb b, tc c, td d)                \
	{                                                               \
		return (result)errno_result(sys_call4(nr, a, b, c, d)); \
	}
#define REAL5(name, result, nr, ta, tb, tc, td, te)                        \
	static result raw_##name(ta a, tb b, tc c, td d, te e)             \
	{                                                                  \
		return (result)errno_result(sys_call5(nr, a, b, c, d, e)); \
	}
#define REAL6(name, result, nr, ta, tb, tc, td, te, tf)                                       \
	static result raw_##name(ta a, tb b, tc c, td d, te e, tf f)                          \
	{                                                                                     \
		return (result)errno_result(                                                  \
			sys_call6(nr, (long)a, (long)b, (long)c, (long)d, (long)e, (long)f)); \
	}
#include "client/preload/real.def"
#undef REAL1
#undef REAL2
#undef REAL3
#undef REAL4
#undef REAL5
#undef REAL6

#define FILL(name)	 .name = raw_##name,
#define REAL1(name, ...) FILL(name)
#define REAL2(name, ...) FILL(name)
#define REAL3(name, ...) FILL(name)
#define REAL4(name, ...) FILL(name)
#define REAL5(name, ...) FILL(name)
#define REAL6(name, ...) FILL(name)
struct real real = {
#include "client/preload/real.def"
};
#undef REAL1
#undef REAL2
#undef REAL3
#undef REAL4
#undef REAL5
#undef REAL6

void *real_lookup(const char *symbol)
{
	return dlsym(RTLD_NEXT, symbol);
}

/* The object pointer that dlsym gives, as the function pointer that it is. */
static void take(void *field, const char *symbol)
{
	void *found = real_lookup(symbol);

	if (found)
		memcpy(field, &found, sizeof(found));
}

void real_resolve(void)
{
	/* openat and fcntl and ioctl are variadic in libc; an integer or pointer in the place of `...`
	 * is passed the same way on the machines that sys.h knows. */
#define REAL1(name, ...) take(&real.name, #name);
#define REAL2(name, ...) take(&real.name, #name);
#define REAL3(name, ...) take(&real.name, #name);
#define REAL4(name, ...) take(&real.name, #name);
#define REAL5(name, ...) take(&real.name, #name);
#define REAL6(name, ...) take(&real.name, #name);
#include "client/preload/real.def"
	take(&real.fork, "fork");
	take(&real.fdopen, "fdopen");
	take(&real.fopen, "fopen");
	take(&real.freopen, "freopen");
	take(&real.syscall, "syscall");
	take(&real.vdprintf, "vdprintf");
	take(&real.spawn_addopen, "posix_spawn_file_actions_addopen");
	take(&real.spawn_adddup2, "posix_spawn_file_actions_adddup2");
	take(&real.aio_write, "aio_write");
	take(&real.lio_listio, "lio_listio");
	take(&real.backtrace_symbols_fd, "backtrace_symbols_fd");
	take(&real.pwritev2, "pwritev2");
	take(&real.preadv2, "preadv2");
	take(&real.posix_fallocate, "posix_fallocate");
	take(&real.fchmodat, "fchmodat");
	take(&real.read_chk_fail, "__chk_fail");
}
