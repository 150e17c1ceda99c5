/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's domains with real client processes, a real file system and an emulated pool. */
#include "cases.h"

#include <stdlib.h>

int main(void)
{
	if (getenv("DOMAIN_TEST"))
		cmocka_set_test_filter(getenv("DOMAIN_TEST"));
	/* how many failed */
	return serves_run() + life_run() + failing_run() + hostile_run() + bypass_run() +
	       beat_run() + asleep_run();
}
