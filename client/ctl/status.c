/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"
#include "client/ctl/notice.h"
#include "client/ctl/status_text.h"

struct asking {
	const char *socket, *domain;
	bool json;
};

/* The daemon's document with what only /proc shows. */
static int show(const struct asking *s, const char *document, int code)
{
	struct json_object *o = json_tokener_parse(document);
	const char *text = document;

	if (o && json_object_is_type(o, json_type_object)) {
		notice_add(o, s->socket);
		if (doc_count(doc_member(o, "unattended")) > 0)
			code = CTL_REFUSED;
		text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_SPACED |
								 JSON_C_TO_STRING_NOSLASHESCAPE);
	}
	if (s->json)
		puts(text);
	else if (!status_text_print(stdout, text))
		code = ctl_fail(CTL_REFUSED, "the daemon's answer is no JSON: are pmemlogctl and "
					     "pmemlogd of one version?");
	json_object_put(o);
	return code;
}

static int once(const struct asking *s)
{
	cleanup_free char *document = NULL;
	struct answer a;
	int r;

	r = ctl_ask_domain(s->socket, WIRE_STATUS, s->domain, CTL_PATIENCE_MS, NULL, &a);
	if (r == -ENAMETOOLONG)
		return ctl_fail(CTL_USAGE, "status: no domain has so long a name");
	if (r < 0)
		return ctl_unreachable(s->socket, r);
	document = a.document;
	if (a.status < 0 || !document)
		return ctl_report(&a);
	return show(s, document, (int)a.reply.exit);
}

/* Until it is ended from outside, also while the daemon is away; false output ends it. */
static int watch(const struct asking *s, unsigned seconds)
{
	int code;

	do {
		if (isatty(STDOUT_FILENO))
			printf("\x1b[H\x1b[2J");
		code = once(s);
		if (!s->json)
			printf("\n");
		if (fflush(stdout) != 0 || code == CTL_USAGE)
			break;
		(void)sleep(seconds);
	} while (true);
	return code;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct asking s = { 0 };
	const char *interval = "2";
	bool watched = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &s.json },
					      { .name = "watch", .flag = &watched },
					      { .name = "interval", .value = &interval },
					      { 0 } };
	char **words, *end;
	unsigned long seconds;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	seconds = strtoul(interval, &end, 10);
	if (*end || end == interval || seconds < 1 || seconds > 3600)
		return ctl_fail(CTL_USAGE, "status: --interval=%s is not 1 to 3600 (seconds)",
				interval);
	s.domain = n > 0 ? words[0] : "";
	s.socket = ctl_socket(c);
	if (!s.socket)
		return CTL_CONFIG;
	return watched ? watch(&s, (unsigned)seconds) : once(&s);
}

const struct verb verb_status = {
	.name = "status",
	.arguments = "[--json] [--watch] [--interval=SECONDS] [DOMAIN]",
	.summary = "durability, domains and files in plain words",
	.help = "  --json              for programs; the names are stable (pmemlogctl(1))\n"
		"  --watch             again and again, until ended\n"
		"  --interval=SECONDS  how often (2)\n"
		"\n"
		"Exit 1 when anything is not as it should be: the pool does not survive a power cut, a\n"
		"domain is held or quarantined, a file is degraded or goes without pmemlogd (bypass), or a\n"
		"process without a session has a file open for writing that a rule names (as root: of all\n"
		"users).\n",
	.run = run,
};
