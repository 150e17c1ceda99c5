/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/local.h"
#include "pool/dir/pool.h"
#include "pool/guard.h"

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool force = false, emulate = false;
	const char *yes = NULL;
	const struct ctl_option options[] = { { .name = "force", .flag = &force },
					      { .name = "emulate", .flag = &emulate },
					      { .name = "yes", .value = &yes },
					      { 0 } };
	struct pool_error error = { "" };
	const struct config *config;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 0, &words, &n);
	if (code >= 0)
		return code;
	config = ctl_config(c);
	if (!config)
		return CTL_CONFIG;
	code = local_make_state_dir(config);
	if (code != 0)
		return code;
	r = guard_install();
	if (r == 0 && force && !ctl_confirm_force(config, yes))
		return CTL_REFUSED;
	if (r == 0)
		r = pool_create(config->pool, config->state_dir, emulate || config->emulate, force,
				&error);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "no pool was made in %s: %s", config->pool,
				error.text[0] ? error.text : strerror(-r));
	printf("A pool was made in %s.\n", config->pool);
	if (emulate || config->emulate)
		printf("It is NOT DURABLE: emulated, it does not survive a power cut. For tests and "
		       "trials only.\n");
	if (emulate && !config->emulate)
		printf("pmemlogd takes it only with `emulate = true;` in its configuration.\n");
	return CTL_GOOD;
}

const struct verb verb_pool_create = {
	.name = "pool create",
	.arguments = "[--force [--yes=PATH]] [--emulate]",
	.summary = "make a pool in the folder that the configuration names",
	.help = "  --emulate  accept memory that does not survive a power cut, for tests and trials\n"
		"  --force    also where a pool or anything else lies already: THAT IS DESTROYED,\n"
		"             acknowledged commits in it included. Says first whose they are\n"
		"  --yes=PATH the pool's path as confirmation, instead of typing it, where\n"
		"             --force would destroy records\n",
	.run = run,
};
