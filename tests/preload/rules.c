/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rules PATH...: prints those that the rules of PMEMLOGD_PRELOAD_CONFIG take over for a program of this file's own
 * name, each preceded by `yes ' or `no '. A path that is taken must pass the quick look at its name, too.
 */
#include <stdio.h>

#include "client/preload/config.h"

int main(int argc, char **argv)
{
	bool any = config_load();

	for (int i = 1; i < argc; i++) {
		bool taken = any && config_match(argv[i]);

		if (taken && !config_may_match(argv[i])) {
			printf("missed at a glance: %s\n", argv[i]);
			return 1;
		}
		printf("%s %s\n", taken ? "yes" : "no", argv[i]);
	}
	return 0;
}
