/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Logs as a whole: list, create, trim, rm. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "client/ctl/log.h"
#include "daemon/quantity.h"

/* ---- list ---------------------------------------------------------------------------------------- */

static void print_log(struct json_object *o)
{
	char user[64], place[160], bytes[32], disk[32];
	uint64_t first = log_json_number(o, "first"), durable = log_json_number(o, "durable");
	const char *error = log_json_text(o, "error");

	(void)snprintf(place, sizeof(place), "%s/%s",
		       ctl_user(user, sizeof(user), (uint32_t)log_json_number(o, "uid")),
		       log_json_text(o, "domain"));
	printf("%-24s %-20s %s in LSN %" PRIu64 " to %" PRIu64 ", %s on disk", place,
	       log_json_text(o, "name"), ctl_bytes(bytes, sizeof(bytes), durable - first), first,
	       durable,
	       log_json_number(o, "disk") >= durable
		       ? "all"
		       : ctl_bytes(disk, sizeof(disk), log_json_number(o, "disk") - first));
	if (log_json_number(o, "capacity"))
		printf(", capacity %s",
		       ctl_bytes(bytes, sizeof(bytes), log_json_number(o, "capacity")));
	if (*error)
		printf("\n    FAILING: %s", error);
	else if (log_json_number(o, "failing"))
		printf("\n    FAILING: the disk takes nothing now; the records are safe in the pool");
	putchar('\n');
}

static int run_list(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool json = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &json }, { 0 } };
	struct json_object *logs;
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	code = log_list(c, n > 0 ? words[0] : "", &logs);
	if (code != 0)
		return code;
	if (json)
		printf("{\"logs\":%s}\n",
		       json_object_to_json_string_ext(logs, JSON_C_TO_STRING_PLAIN));
	for (size_t i = 0; i < json_object_array_length(logs); i++) {
		struct json_object *o = json_object_array_get_idx(logs, i);

		if (!json)
			print_log(o);
		if (log_json_number(o, "failing"))
			code = CTL_REFUSED;
	}
	json_object_put(logs);
	return code;
}

const struct verb verb_log_list = {
	.name = "log list",
	.arguments = "[--json] [DOMAIN]",
	.summary = "native logs with their bytes and LSNs",
	.help = "  --json  for programs; the names are stable (pmemlogctl(1))\n"
		"\n"
		"Of DOMAIN, or of all that one may see. Exit 1 when one of them fails.\n",
	.run = run_list,
};

/* ---- create -------------------------------------------------------------------------------------- */

static int run_create(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const char *domain = NULL, *capacity = NULL;
	bool if_missing = false;
	const struct ctl_option options[] = { { .name = "domain", .value = &domain },
					      { .name = "capacity", .value = &capacity },
					      { .name = "if-missing", .flag = &if_missing },
					      { 0 } };
	const struct quantity_range range = { 65536, INT64_MAX, 1 };
	struct wire_log q = { .flags = WIRE_LOG_CREATE | WIRE_LOG_EXCLUSIVE, .mode = 0600 };
	struct log_answer a;
	char why[256];
	struct log_link l;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	if (capacity &&
	    quantity_parse(capacity, quantity_bytes, &range, &q.value, why, sizeof(why)) < 0)
		return ctl_fail(CTL_USAGE, "log create: --capacity: %s", why);
	if (if_missing)
		q.flags = WIRE_LOG_CREATE;
	code = log_begin(c, domain, words[0], true, &l);
	if (code != 0)
		return code;
	r = log_ask(&l, WIRE_LOG_OPEN, &q, &a);
	if (r < 0 || a.status < 0)
		code = log_refused(&l, WIRE_LOG_OPEN, r, &a);
	link_close(&l);
	return code;
}

const struct verb verb_log_create = {
	.name = "log create",
	.arguments = "[--domain DOMAIN] [--capacity SIZE] [--if-missing] LOG",
	.summary = "make a log, durably",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"; made if it is not there\n"
		"  --capacity SIZE  appends are refused while the untrimmed part would grow above it\n"
		"  --if-missing     good where it is there already\n",
	.run = run_create,
};

/* ---- trim ---------------------------------------------------------------------------------------- */

static int run_trim(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const char *domain = NULL;
	bool json = false;
	const struct ctl_option options[] = { { .name = "domain", .value = &domain },
					      { .name = "json", .flag = &json },
					      { 0 } };
	struct wire_log q = { 0 };
	struct log_answer a;
	struct log_link l;
	uint64_t lsn = 0;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 2, 2, &words, &n);
	if (code >= 0)
		return code;
	/* before anybody is asked: a wrong word is a wrong command line */
	if (!log_parse_lsn(words[1], &(struct wire_log_reply){ 0 }, &lsn))
		return CTL_USAGE;
	code = log_begin(c, domain, words[0], false, &l);
	if (code != 0)
		return code;
	r = log_ask(&l, WIRE_LOG_STAT, &q, &a);
	if (r == 0 && a.status == 0) {
		(void)log_parse_lsn(words[1], &a.reply, &lsn);
		q.lsn = lsn;
		r = log_ask(&l, WIRE_LOG_TRIM, &q, &a);
	}
	if (r < 0 || a.status < 0)
		code = log_refused(&l, WIRE_LOG_TRIM, r, &a);
	else
		printf(json ? "{\"first\":%" PRIu64 "}\n" : "first LSN %" PRIu64 "\n", a.reply.lsn);
	link_close(&l);
	return code;
}

const struct verb verb_log_trim = {
	.name = "log trim",
	.arguments = "[--domain DOMAIN] [--json] LOG LSN",
	.summary = "give up the records that end at or below an LSN",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  --json           print {\"first\"}\n"
		"\n"
		"LSN: a number, or \"end\" for all records. One inside a record keeps that record. What was given up\n"
		"does not come back. Prints the LSN of the first record that is left.\n",
	.run = run_trim,
};

/* ---- rm ------------------------------------------------------------------------------------------ */

static int run_rm(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const char *domain = NULL, *yes = NULL;
	const struct ctl_option options[] = { { .name = "domain", .value = &domain },
					      { .name = "yes", .value = &yes },
					      { 0 } };
	struct wire_log q = { 0 };
	struct log_answer a;
	struct log_link l;
	char **words, what[256], bytes[32];
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	code = log_begin(c, domain, words[0], false, &l);
	if (code != 0)
		return code;
	r = log_ask(&l, WIRE_LOG_STAT, &q, &a);
	/* one that is damaged must be removable, too */
	if (r == 0 && (a.status == 0 || a.status == -EBADMSG)) {
		(void)snprintf(what, sizeof(what), "%s of %s, %s, will be deleted for good.",
			       l.name, l.domain,
			       ctl_bytes(bytes, sizeof(bytes), a.reply.durable - a.reply.first));
		if (!ctl_confirm("log's name", l.name, yes, what)) {
			link_close(&l);
			return CTL_REFUSED;
		}
		r = log_ask(&l, WIRE_LOG_REMOVE, &q, &a);
	}
	if (r < 0 || a.status < 0)
		code = log_refused(&l, WIRE_LOG_REMOVE, r, &a);
	link_close(&l);
	return code;
}

const struct verb verb_log_rm = {
	.name = "log rm",
	.arguments = "[--domain DOMAIN] [--yes=LOG] LOG",
	.summary = "delete a log with all its records",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"\n"
		"  --yes=LOG        the log's name as confirmation, instead of typing it\n"
		"\n"
		"Programs that have it open get an error from then on.\n",
	.run = run_rm,
};
