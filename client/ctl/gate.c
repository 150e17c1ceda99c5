/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "client/ctl/ctl.h"
#include "client/ctl/local.h"
#include "daemon/recover/offline.h"

/* A daemon that has the pool and does not answer yet: looked for that often, and told that often. */
#define RETRY_US       200000
#define RETRY_TELL_NS  UINT64_C(10000000000)
#define RETRY_LIMIT_NS UINT64_C(120000000000)

/* One domain. Returns the exit code. */
static int recover_one(struct ctl *c, struct pool *p, uint32_t index, const struct pool_domain *d)
{
	const struct recover_options o = { .clock_wait_ns = ctl_config(c)->clock_wait_ns };
	char user[64], why[512] = "";
	int r;

	ctl_user(user, sizeof(user), d->uid);
	if (d->verdict == VERDICT_QUARANTINED) {
		/* Changes nothing but the attributes, which a crash behind the verdict left off. */
		(void)recover_domain(p, index, &o, NULL);
		return ctl_fail(CTL_REFUSED,
				"%s/%s is quarantined: %s. Do not start its database; see RECOVERY "
				"in pmemlogctl(1)",
				user, d->name, d->reason);
	}
	r = offline_recover(p, index, ctl_config(c)->run_dir, &o, NULL, why, sizeof(why));
	switch (r) {
	case RECOVER_CLEAN:
		printf("%s/%s: nothing is left over\n", user, d->name);
		return CTL_GOOD;
	case RECOVER_QUARANTINED:
		return ctl_fail(CTL_REFUSED,
				"%s/%s is quarantined: %s. Do not start its database; see RECOVERY "
				"in pmemlogctl(1)",
				user, d->name, why);
	case RECOVER_HELD:
		return ctl_fail(CTL_REFUSED, "%s/%s is held: %s", user, d->name, why);
	default:
		return ctl_fail(CTL_REFUSED, "%s/%s: %s", user, d->name, *why ? why : strerror(-r));
	}
}

/* Without a daemon: -EBUSY (one is coming up), or the exit code. */
static int gate_local(struct ctl *c, const struct domain_name *name)
{
	struct pool_domain d;
	struct pool *p;
	int code = CTL_GOOD, found = 0;
	int r = local_open(c, false, &p);

	if (r != 0)
		return r;
	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		int index = local_find(p, name, i, &d);

		if (index < 0)
			break;
		i = (uint32_t)index;
		found++;
		if (recover_one(c, p, i, &d) != CTL_GOOD)
			code = CTL_REFUSED;
	}
	pool_close(p);
	if (!found)
		printf("no domain %s is known: nothing is left over\n", name->name);
	return code;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const struct ctl_option options[] = { { 0 } };
	uint64_t begin = now_monotonic_ns(), told = begin;
	struct domain_name name;
	const char *socket;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	code = local_name(words[0], &name);
	if (code != 0)
		return code;
	socket = ctl_socket(c);
	if (!socket)
		return CTL_CONFIG;
	for (;;) {
		struct answer a;

		r = ctl_ask_domain(socket, WIRE_GATE, words[0], 0, NULL, &a);
		free(a.document);
		/* a daemon that is just stopping is none */
		if (r == 0 && a.status != -ESHUTDOWN)
			return ctl_report(&a);
		if (r < 0 && !local_nobody_there(r))
			return ctl_unreachable(socket, r);
		code = gate_local(c, &name);
		if (code != -EBUSY)
			return code;
		if (now_monotonic_ns() - begin > RETRY_LIMIT_NS)
			return ctl_fail(CTL_REFUSED,
					"somebody has the pool and does not answer at %s; is "
					"pmemlogd starting or stopping? journalctl -u pmemlogd",
					socket);
		if (now_monotonic_ns() - told > RETRY_TELL_NS) {
			told = now_monotonic_ns();
			ctl_fail(0, "waiting for the daemon, which has the pool");
		}
		(void)usleep(RETRY_US);
	}
}

const struct verb verb_gate = {
	.name = "gate",
	.arguments = "DOMAIN",
	.summary = "may the database of this domain start?",
	.help = "Exit 0 only if nothing of DOMAIN is left over outside its files. Waits while the daemon\n"
		"recovers; without a daemon it recovers the lane itself. Belongs into the unit of the\n"
		"database: ExecStartPre=+pmemlogctl gate DOMAIN\n",
	.run = run,
};
