/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/limits.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/overflow.h"
#include "daemon/log.h"

#define LIMITS_FILES 65536u /* a descriptor for each registered file and each client */

void limits_set(void)
{
	struct rlimit limit;

	(void)umask(077);
	(void)setlocale(LC_ALL, "C");
	(void)signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < LIMITS_FILES) {
		limit.rlim_cur = min_of((rlim_t)LIMITS_FILES, limit.rlim_max);
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int check_folder(const char *path, mode_t mode, char *ret_error, unsigned n)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		(void)snprintf(ret_error, n, "%s: not a folder", path);
		return -ENOTDIR;
	}
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		(void)snprintf(ret_error, n,
			       "%s: belongs to user %u, must belong to root or to user %u "
			       "(chown, or remove it: it is made anew)",
			       path, (unsigned)st.st_uid, (unsigned)geteuid());
		return -EPERM;
	}
	/* Where others write without the sticky bit they could put their own control file there. */
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !((mode & S_ISVTX) && (st.st_mode & S_ISVTX))) {
		(void)snprintf(ret_error, n, "%s: mode %04o lets others write there (chmod %04o)",
			       path, (unsigned)st.st_mode & 07777u, (unsigned)mode);
		return -EPERM;
	}
	return 0;
}

static int make_folder(const char *folder, const char *below, mode_t mode, char *ret_error,
		       unsigned n)
{
	char path[512];
	int r;

	(void)snprintf(path, sizeof(path), "%s%s", folder, below);
	if (mkdir(path, 0700) == 0) {
		if (chmod(path, mode) < 0) { /* mkdir is subject to the umask and to ACLs */
			r = -errno;
			(void)snprintf(ret_error, n, "%s: %s", path, strerror(-r));
			return r;
		}
		log_msg(LOG_INFO, NULL, "made %s", path);
		return 0;
	}
	if (errno != EEXIST) {
		r = -errno;
		(void)snprintf(ret_error, n, "%s: cannot be made: %s", path, strerror(-r));
		return r;
	}
	return check_folder(path, mode, ret_error, n);
}

int limits_make_folders(const struct config *c, char *ret_error, unsigned n)
{
	const struct {
		const char *folder, *below;
		mode_t mode;
	} folders[] = {
		{ c->run_dir, "", 0755 },
		{ c->run_dir, "/control", 0755 },
		{ c->run_dir, "/bypass", 01777 },
		{ c->state_dir, "", 0700 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		int r = make_folder(folders[i].folder, folders[i].below, folders[i].mode, ret_error,
				    n);

		if (r < 0)
			return r;
	}
	return 0;
}
