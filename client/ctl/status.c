/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/status_text.h"

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool json = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &json }, { 0 } };
	cleanup_free char *document = NULL;
	const char *socket;
	struct answer a;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	socket = ctl_socket(c);
	if (!socket)
		return CTL_CONFIG;
	r = ctl_ask_domain(socket, WIRE_STATUS, n > 0 ? words[0] : "", CTL_PATIENCE_MS, NULL, &a);
	if (r == -ENAMETOOLONG)
		return ctl_fail(CTL_USAGE, "status: no domain has so long a name");
	if (r < 0)
		return ctl_unreachable(socket, r);
	document = a.document;
	if (a.status < 0 || !document)
		return ctl_report(&a);
	if (json)
		puts(document);
	else if (!status_text_print(stdout, document))
		return ctl_fail(CTL_REFUSED, "the daemon's answer is no JSON: are pmemlogctl and "
					     "pmemlogd of one version?");
	return (int)a.reply.exit;
}

const struct verb verb_status = {
	.name = "status",
	.arguments = "[--json] [DOMAIN]",
	.summary = "durability, domains and files in plain words",
	.help = "  --json  for programs; the names are stable (pmemlogctl(1))\n"
		"\n"
		"Exit 1 when anything is not as it should be: the pool does not survive a power cut, a\n"
		"domain is held or quarantined, a file is degraded or goes without pmemlogd (bypass).\n",
	.run = run,
};
