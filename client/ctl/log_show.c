/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is in a log: cat, tail, dump. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/overflow.h"
#include "client/ctl/log.h"

#define FOLLOW_MS    10000u  /* one waiting read; picked */
#define RETRY_US     200000u /* a daemon that is away is looked for that often */
#define TAIL_DEFAULT 10u

struct range {
	const char *domain, *from, *to;
};

/* Parses, finds the log, asks for its STAT. 0, or an exit code (told). */
static int begin(struct ctl *c, const struct range *range, const char *name, struct log_link *l,
		 uint64_t *from, uint64_t *to)
{
	struct wire_log_reply nothing = { 0 };
	struct wire_log q = { 0 };
	struct log_answer a;
	int code, r;

	/* before anybody is asked: a wrong word is a wrong command line */
	if ((range->from && !log_parse_lsn(range->from, &nothing, from)) ||
	    (range->to && !log_parse_lsn(range->to, &nothing, to)))
		return CTL_USAGE;
	code = log_begin(c, range->domain, name, false, l);
	if (code != 0)
		return code;
	r = log_ask(l, WIRE_LOG_STAT, &q, &a);
	if (r < 0 || a.status < 0) {
		code = log_refused(l, WIRE_LOG_STAT, r, &a);
		link_close(l);
		return code;
	}
	*from = a.reply.first;
	*to = a.reply.durable;
	if (range->from)
		(void)log_parse_lsn(range->from, &a.reply, from);
	if (range->to)
		(void)log_parse_lsn(range->to, &a.reply, to);
	/* what is not there is no error of reading on */
	*to = min_of(*to, a.reply.durable);
	return 0;
}

static int end(struct log_link *l, int r, const struct log_answer *a)
{
	int code = 0;

	if (r < 0 || a->status < 0)
		code = log_refused(l, WIRE_LOG_READ, r, a);
	link_close(l);
	return code;
}

static bool put(const void *data, size_t n)
{
	return fwrite(data, 1, n, stdout) == n;
}

/* ---- cat ----------------------------------------------------------------------------------------- */

static int run_cat(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct range range = { 0 };
	const struct ctl_option options[] = { { .name = "domain", .value = &range.domain },
					      { .name = "from", .value = &range.from },
					      { .name = "to", .value = &range.to },
					      { 0 } };
	struct log_answer a = { .fd = -1 };
	struct log_link l;
	uint64_t lsn, to;
	char **words;
	int code, n, r = 0;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	code = begin(c, &range, words[0], &l, &lsn, &to);
	if (code != 0)
		return code;
	while (r == 0 && a.status == 0 && lsn < to) {
		struct wire_log q = { .lsn = lsn,
				      .value = min_of(to - lsn, (uint64_t)WIRE_LOG_PAYLOAD) };

		r = log_ask(&l, WIRE_LOG_READ, &q, &a);
		if (r < 0 || a.status < 0 || a.length == 0 || !put(a.payload, a.length))
			break;
		lsn += a.length;
	}
	return end(&l, r, &a);
}

const struct verb verb_log_cat = {
	.name = "log cat",
	.arguments = "[--domain DOMAIN] [--from LSN] [--to LSN] LOG",
	.summary = "the bytes of a log, as they are",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  --from LSN       the first byte; else that of the oldest record\n"
		"  --to LSN         the byte behind the last one; else the log's end\n"
		"\n"
		"LSN: a number, or \"first\" or \"end\". Nothing is put between the records.\n",
	.run = run_cat,
};

/* ---- dump ---------------------------------------------------------------------------------------- */

static bool dump_record(void *json, const struct log_record *r)
{
	log_print_record(r, *(bool *)json);
	return !ferror(stdout);
}

static int run_dump(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct range range = { 0 };
	bool json = false;
	const struct ctl_option options[] = { { .name = "domain", .value = &range.domain },
					      { .name = "from", .value = &range.from },
					      { .name = "to", .value = &range.to },
					      { .name = "json", .flag = &json },
					      { 0 } };
	struct log_answer a;
	struct log_link l;
	uint64_t lsn, to;
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	code = begin(c, &range, words[0], &l, &lsn, &to);
	if (code != 0)
		return code;
	code = log_walk(&l, &lsn, to, 0, dump_record, &json, &a);
	return end(&l, code, &a);
}

const struct verb verb_log_dump = {
	.name = "log dump",
	.arguments = "[--domain DOMAIN] [--from LSN] [--to LSN] [--json] LOG",
	.summary = "each record of a log with LSN, time, length and bytes",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  --from LSN       from the record on that this LSN lies in\n"
		"  --to LSN         up to the record that this LSN lies in\n"
		"  --json           a line for each: {\"lsn\", \"time_ns\", \"length\", \"data\"}, data in base64\n"
		"\n"
		"LSN: a number, or \"first\" or \"end\".\n",
	.run = run_dump,
};

/* ---- tail ---------------------------------------------------------------------------------------- */

struct tail {
	bool json;
	bool at_once;  /* somebody waits for each record */
	uint64_t n;    /* records that were counted */
	uint64_t skip; /* of them, not to be shown */
};

static bool count_record(void *arg, const struct log_record *r)
{
	struct tail *t = arg;

	(void)r;
	t->n++;
	return true;
}

static bool tail_record(void *arg, const struct log_record *r)
{
	struct tail *t = arg;

	if (t->skip > 0) {
		t->skip--;
		return true;
	}
	if (t->json)
		log_print_record(r, true);
	else
		(void)put(r->data, r->length);
	return (!t->at_once || fflush(stdout) == 0) && !ferror(stdout);
}

/* Where the last `wanted` records begin: looks back over more and more bytes until there are as many. */
static int find_last(struct log_link *l, uint64_t first, uint64_t end_lsn, uint64_t wanted,
		     uint64_t *ret_from, struct tail *t, struct log_answer *a)
{
	uint64_t back = 64 * wanted;

	for (;;) {
		uint64_t from = end_lsn - first > back ? end_lsn - back : first, at = from;
		int r;

		t->n = 0;
		r = log_walk(l, &at, end_lsn, 0, count_record, t, a);
		if (r < 0 || a->status < 0)
			return r;
		if (t->n >= wanted || from == first) {
			t->skip = t->n > wanted ? t->n - wanted : 0;
			*ret_from = from;
			return 0;
		}
		back = back > UINT64_MAX / 8 ? UINT64_MAX : back * 8;
	}
}

/* Goes on for ever, also when the daemon is away for a while, or the domain held. Returns an exit code. */
static int follow(struct log_link *l, uint64_t lsn, struct tail *t)
{
	bool told = false;
	struct log_answer a = { .fd = -1 };

	/* The old ones are shown now, not with the first new one. */
	(void)fflush(stdout);
	t->at_once = true;
	for (;;) {
		bool walked = l->fd >= 0;
		int r = walked ? log_walk(l, &lsn, UINT64_MAX, FOLLOW_MS, tail_record, t, &a)
			       : link_open(l);

		walked = walked && r == 0;
		if (ferror(stdout) || r > 0) {
			link_close(l);
			return r > 0 ? r : CTL_REFUSED;
		}
		if (r == 0 && (!walked || a.status == 0)) {
			told = told && !walked;
			continue;
		}
		if (walked && a.status != -ESHUTDOWN && a.status != -EBUSY)
			return end(l, 0, &a);
		if (!told)
			ctl_fail(0, "%s; waiting for it",
				 walked && *a.data.text ? a.data.text : "the daemon went away");
		told = true;
		link_close(l);
		(void)usleep(RETRY_US);
	}
}

static int run_tail(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct range range = { 0 };
	struct tail t = { 0 };
	const char *count = NULL;
	bool go_on = false;
	const struct ctl_option options[] = { { .name = "domain", .value = &range.domain },
					      { .name = "n", .value = &count },
					      { .name = "f", .flag = &go_on },
					      { .name = "follow", .flag = &go_on },
					      { .name = "json", .flag = &t.json },
					      { 0 } };
	struct log_answer a = { .fd = -1 };
	uint64_t wanted = TAIL_DEFAULT, first, lsn, to;
	struct log_link l;
	char **words;
	int code, n, r = 0;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	if (count) {
		char *stop;

		errno = 0;
		wanted = strtoull(count, &stop, 10);
		if (errno || *stop || *count < '0' || *count > '9' || wanted > UINT32_MAX)
			return ctl_fail(CTL_USAGE, "log tail: -n takes a number of records");
	}
	code = begin(c, &range, words[0], &l, &first, &to);
	if (code != 0)
		return code;
	lsn = to;
	if (wanted > 0)
		r = find_last(&l, first, to, wanted, &lsn, &t, &a);
	if (r == 0 && a.status == 0)
		r = log_walk(&l, &lsn, to, 0, tail_record, &t, &a);
	if (r < 0 || a.status < 0 || !go_on)
		return end(&l, r, &a);
	return follow(&l, lsn, &t);
}

const struct verb verb_log_tail = {
	.name = "log tail",
	.arguments = "[--domain DOMAIN] [-n RECORDS] [-f] [--json] LOG",
	.summary = "the last records of a log, and with -f each new one",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  -n RECORDS       how many; 10\n"
		"  -f, --follow     then each new record as it becomes durable; a daemon that is restarted is\n"
		"                   waited for, and no record is left out or comes twice\n"
		"  --json           a line for each: {\"lsn\", \"time_ns\", \"length\", \"data\"}, data in base64\n"
		"\n"
		"Nothing is put between the records.\n",
	.run = run_tail,
};
