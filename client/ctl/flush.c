/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"

struct progress {
	const char *socket, *domain;
	bool shown;
};

static uint64_t live_bytes(const char *document)
{
	struct json_object *o = json_tokener_parse(document), *domains, *live;
	uint64_t sum = 0;

	if (json_object_object_get_ex(o, "domains", &domains))
		for (size_t i = 0; i < json_object_array_length(domains); i++)
			if (json_object_object_get_ex(json_object_array_get_idx(domains, i),
						      "live_bytes", &live))
				sum += json_object_get_uint64(live);
	json_object_put(o);
	return sum;
}

/* What is still on its way, from a second connection: the first one waits for the answer. */
static void show(void *arg)
{
	struct progress *p = arg;
	struct answer a;
	char bytes[32];

	if (ctl_ask_domain(p->socket, WIRE_STATUS, p->domain, CTL_PATIENCE_MS, NULL, &a) < 0)
		return;
	if (a.document) {
		(void)fprintf(stderr, "\r%-10s to go ",
			      ctl_bytes(bytes, sizeof(bytes), live_bytes(a.document)));
		p->shown = true;
	}
	free(a.document);
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const struct ctl_option options[] = { { 0 } };
	struct progress progress = { 0 };
	struct wait_hook hook = { .tick = show, .arg = &progress };
	struct answer a;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	progress.domain = n > 0 ? words[0] : "";
	progress.socket = ctl_socket(c);
	if (!progress.socket)
		return CTL_CONFIG;
	r = ctl_ask_domain(progress.socket, WIRE_FLUSH, progress.domain, CTL_PATIENCE_MS,
			   isatty(STDERR_FILENO) ? &hook : NULL, &a);
	if (progress.shown)
		(void)fprintf(stderr, "\r%-24s\r", "");
	if (r == -ENAMETOOLONG)
		return ctl_fail(CTL_USAGE, "flush: no domain has so long a name");
	if (r < 0)
		return ctl_unreachable(progress.socket, r);
	free(a.document);
	return ctl_report(&a);
}

const struct verb verb_flush = {
	.name = "flush",
	.arguments = "[DOMAIN]",
	.summary = "make durable in the files what was acknowledged before the call",
	.help = "Returns when all that was acknowledged before the call, in DOMAIN or in all domains, is\n"
		"durable in its files: before a snapshot of a volume, for example. Root may flush every\n"
		"domain, others their own. Exit 1: something could not be made durable in its file; it is\n"
		"safe in the pool.\n",
	.run = run,
};
