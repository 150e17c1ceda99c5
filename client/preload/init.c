/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Start: libc's functions, then the rules. A program that no rule names is left alone. */

#include <errno.h>

#include "client/preload/config.h"
#include "client/preload/desc.h"
#include "client/preload/page.h"

__attribute__((constructor)) static void start(void)
{
	int keep = errno;

	real_resolve();
	/* The table last: it is what switches the library on. */
	if (config_load() && page_init() == 0)
		(void)desc_init();
	errno = keep;
}
