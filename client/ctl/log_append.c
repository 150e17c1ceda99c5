/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/ctl/log.h"

struct append {
	struct log_link l;
	bool json;
	uint64_t end; /* of the log, when we last heard of it */
};

/* One record. 0 or an exit code (told). */
static int append(struct append *a, const char *data, size_t n)
{
	struct wire_log_append q = { .length = (uint32_t)n };
	struct log_answer answer;
	int r;

	memcpy(q.name, a->l.name, strlen(a->l.name) + 1);
	if (!*a->l.hello)
		memcpy(q.domain, a->l.domain, sizeof(q.domain));
	r = link_ask(&a->l, WIRE_LOG_APPEND, &q, sizeof(q), data, n, &answer);
	if (r < 0)
		return ctl_fail(
			CTL_UNREACHABLE,
			"the daemon went away before it answered: the record may be in the log, "
			"at LSN %" PRIu64 " or above, or not; pmemlogctl log dump --from %" PRIu64
			" %s shows it",
			a->end, a->end, a->l.name);
	if (answer.status < 0)
		return log_refused(&a->l, WIRE_LOG_APPEND, 0, &answer);
	a->end = answer.reply.lsn + n;
	if (a->json)
		printf("{\"lsn\":%" PRIu64 ",\"length\":%zu}\n", answer.reply.lsn, n);
	else
		printf("%" PRIu64 "\n", answer.reply.lsn);
	/* who reads this takes it as the acknowledgement */
	if (fflush(stdout) != 0)
		return ctl_fail(CTL_REFUSED, "the output could not be written");
	return 0;
}

static int append_lines(struct append *a)
{
	cleanup_free char *line = NULL;
	uint64_t number = 0;
	size_t room = 0;
	ssize_t n;

	while ((n = getline(&line, &room, stdin)) > 0) {
		int code;

		number++;
		if ((size_t)n > WIRE_LOG_PAYLOAD)
			return ctl_fail(CTL_REFUSED,
					"line %" PRIu64
					" is longer than a record, %u bytes; those before it "
					"are in the log",
					number, WIRE_LOG_PAYLOAD);
		code = append(a, line, (size_t)n);
		if (code != 0)
			return code;
	}
	return ferror(stdin) ? ctl_fail(CTL_REFUSED, "standard input: %s", strerror(errno)) : 0;
}

static int append_all(struct append *a)
{
	cleanup_free char *data = malloc(WIRE_LOG_PAYLOAD + 1);
	size_t n;

	if (!data)
		return ctl_fail(CTL_REFUSED, "%s", strerror(ENOMEM));
	n = fread(data, 1, WIRE_LOG_PAYLOAD + 1, stdin);
	if (ferror(stdin))
		return ctl_fail(CTL_REFUSED, "standard input: %s", strerror(errno));
	if (n == 0)
		return ctl_fail(CTL_REFUSED, "standard input is empty, and a record is not");
	if (n > WIRE_LOG_PAYLOAD)
		return ctl_fail(
			CTL_REFUSED,
			"standard input is longer than a record, %u bytes: nothing was appended "
			"(--lines makes a record of each line)",
			WIRE_LOG_PAYLOAD);
	return append(a, data, n);
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool create = false, lines = false, json = false;
	const char *domain = NULL;
	const struct ctl_option options[] = { { .name = "domain", .value = &domain },
					      { .name = "create", .flag = &create },
					      { .name = "lines", .flag = &lines },
					      { .name = "json", .flag = &json },
					      { 0 } };
	struct append a = { .json = false };
	struct wire_log q = { 0 };
	struct log_answer answer;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	code = log_begin(c, domain, words[0], create, &a.l);
	if (code != 0)
		return code;
	a.json = json;
	if (create) {
		q.flags = WIRE_LOG_CREATE;
		q.mode = 0600;
	}
	r = log_ask(&a.l, WIRE_LOG_OPEN, &q, &answer);
	if (r < 0 || answer.status < 0) {
		code = log_refused(&a.l, WIRE_LOG_OPEN, r, &answer);
	} else {
		a.end = answer.reply.durable;
		code = lines ? append_lines(&a) : append_all(&a);
	}
	link_close(&a.l);
	return code;
}

const struct verb verb_log_append = {
	.name = "log append",
	.arguments = "[--domain DOMAIN] [--create] [--lines] [--json] LOG",
	.summary = "append standard input to a log as one record, and print its LSN",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  --create         make the log if it is not there\n"
		"  --lines          each line is a record, its end included\n"
		"  --json           print {\"lsn\", \"length\"} for each record\n"
		"\n"
		"A record has 1 to 61440 bytes. When its LSN is printed it is durable. Exit 3: the daemon went\n"
		"away; the record that had no answer may be in the log or not.\n",
	.run = run,
};
