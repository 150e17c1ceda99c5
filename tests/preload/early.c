/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A library of the program's whose constructor writes log.1, before the preload library's has run. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/preload/early.h"

__attribute__((visibility("default"))) int early_fd = -1;

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("EARLY");

	if (!path)
		return;
	early_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (early_fd >= 0 && write(early_fd, "early", 5) != 5)
		abort();
}
