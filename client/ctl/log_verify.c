/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads each record of a log, from its segments and from the pool, and holds it against its CRC. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/cleanup.h"
#include "base/sys.h"
#include "client/ctl/log.h"
#include "pool/segment.h"

#define PROGRESS_NS UINT64_C(200000000)

struct check {
	const char *name, *domain;
	bool json, progress;
	uint64_t first, to;	    /* LSNs to be looked at */
	uint64_t lsn;		    /* of the next record */
	uint64_t records, segments; /* seen */
	uint64_t told_ns;
	char error[WIRE_TEXT + 128]; /* "": none */
};

/* The only bytes of a segment that no checksum covers. */
static bool padding_is_zero(const struct segment_reader *r, const struct segment_frame *f)
{
	for (uint32_t i = f->length; i < ((f->length + 7u) & ~7u); i++)
		if (r->payload[i] != 0)
			return false;
	return true;
}

static void fault(struct check *k, const char *what)
{
	if (!*k->error)
		(void)snprintf(k->error, sizeof(k->error), "LSN %" PRIu64 ": %s", k->lsn, what);
}

static void show(struct check *k)
{
	uint64_t now = now_monotonic_ns();

	if (!k->progress || now - k->told_ns < PROGRESS_NS)
		return;
	k->told_ns = now;
	(void)fprintf(stderr, "\r%s: %3" PRIu64 " %% ", k->name,
		      k->to > k->first ? (k->lsn - k->first) * 100 / (k->to - k->first) : 100);
}

static void hide(const struct check *k)
{
	if (k->told_ns)
		(void)fprintf(stderr, "\r%-*s\r", (int)strlen(k->name) + 10, "");
}

/* 0 good, or the exit code. */
static int report(struct check *k)
{
	char bytes[32];
	bool good = !*k->error;

	hide(k);
	if (k->json) {
		struct json_object *o = json_object_new_object();

		json_object_object_add(o, "domain", json_object_new_string(k->domain));
		json_object_object_add(o, "name", json_object_new_string(k->name));
		json_object_object_add(o, "good", json_object_new_boolean(good));
		json_object_object_add(o, "first", json_object_new_uint64(k->first));
		json_object_object_add(o, "checked", json_object_new_uint64(k->lsn));
		json_object_object_add(o, "end", json_object_new_uint64(k->to));
		json_object_object_add(o, "records", json_object_new_uint64(k->records));
		json_object_object_add(o, "segments", json_object_new_uint64(k->segments));
		json_object_object_add(o, "error", json_object_new_string(k->error));
		printf("%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
		json_object_put(o);
	} else {
		printf("%s %s: %s; %" PRIu64 " records, %s in LSN %" PRIu64 " to %" PRIu64
		       ", %" PRIu64 " segments\n",
		       k->domain, k->name, good ? "good" : k->error, k->records,
		       ctl_bytes(bytes, sizeof(bytes), k->lsn - k->first), k->first, k->lsn,
		       k->segments);
	}
	(void)fflush(stdout);
	return good ? CTL_GOOD : CTL_REFUSED;
}

/* The frames of one segment, up to `to`. *ret_log: the log's number, to be the same in all. False: a fault. */
static bool check_segment(struct check *k, int fd, uint64_t first, uint64_t to, uint8_t log[16])
{
	static const uint8_t none[16];
	struct segment_reader r;
	struct segment_frame f;
	int rc = segment_begin(&r, fd, first);

	if (rc == 0 && memcmp(log, none, sizeof(none)) != 0 &&
	    memcmp(log, r.header.log, sizeof(none)) != 0)
		rc = -ESTALE;
	if (rc < 0) {
		fault(k, rc == -EBADMSG	 ? "the segment's header is damaged"
			 : rc == -ESTALE ? "the segment is of another log"
					 : strerror(-rc));
		return false;
	}
	memcpy(log, r.header.log, sizeof(r.header.log));
	k->segments++;
	while (r.lsn < to && (rc = segment_next(&r, &f)) == 1) {
		/* the first segment begins below what is kept */
		if (r.lsn <= k->lsn)
			continue;
		if (!padding_is_zero(&r, &f)) {
			rc = -EBADMSG;
			break;
		}
		k->lsn = r.lsn;
		k->records++;
		show(k);
	}
	if (rc < 0)
		fault(k, rc == -EBADMSG ? "the record is damaged" : strerror(-rc));
	segment_end(&r);
	return rc >= 0;
}

/* ---- through the daemon -------------------------------------------------------------------------- */

static bool count(void *arg, const struct log_record *r)
{
	struct check *k = arg;

	k->lsn = r->lsn + r->length;
	k->records++;
	show(k);
	return true;
}

static bool check_disk(struct check *k, struct log_link *l, uint64_t disk, int *ret)
{
	uint8_t log[16] = { 0 };

	while (k->lsn < disk) {
		struct wire_log q = { .lsn = k->lsn };
		struct log_answer a;
		uint64_t before = k->lsn;
		bool good;

		*ret = log_ask(l, WIRE_LOG_SEGMENT, &q, &a);
		if (*ret < 0)
			return false;
		if (a.status < 0 || a.fd < 0) {
			fault(k, *a.reply.text ? a.reply.text : strerror(-a.status));
			return false;
		}
		good = check_segment(k, a.fd, a.reply.lsn, disk, log);
		close_fd(&a.fd);
		if (good && k->lsn == before)
			fault(k, "its segment ends before it");
		if (*k->error)
			return false;
	}
	return true;
}

static int check_link(struct check *k, struct log_link *l)
{
	struct wire_log q = { 0 };
	struct log_answer a;
	int r = log_ask(l, WIRE_LOG_STAT, &q, &a);

	if (r < 0)
		return log_refused(l, WIRE_LOG_STAT, r, &a);
	k->domain = l->domain;
	if (a.status < 0) {
		fault(k, *a.reply.text ? a.reply.text : strerror(-a.status));
		return report(k);
	}
	k->first = k->lsn = a.reply.first;
	k->to = a.reply.durable;
	if (check_disk(k, l, a.reply.disk, &r) && r == 0) {
		uint64_t lsn = k->lsn;

		r = log_walk(l, &lsn, k->to, 0, count, k, &a);
		if (r == 0 && a.status < 0)
			fault(k, a.status == -EBADMSG ? "the record is damaged"
				 : *a.data.text	      ? a.data.text
						      : strerror(-a.status));
		else if (r == 0 && k->lsn < k->to)
			fault(k, "the records end before the log does");
	}
	if (r < 0) {
		hide(k);
		return log_refused(l, WIRE_LOG_READ, r, &a);
	}
	return report(k);
}

static int check_one(struct ctl *c, const char *domain, const char *name, bool json)
{
	struct check k = { .name = name, .json = json, .progress = isatty(STDERR_FILENO) };
	struct log_link l;
	int code = log_begin(c, domain, name, false, &l);

	if (code != 0)
		return code;
	code = check_link(&k, &l);
	link_close(&l);
	return code;
}

static int check_all(struct ctl *c, const char *domain, bool json)
{
	struct json_object *logs;
	int code = log_list(c, domain ? domain : "", &logs), worst = 0;

	if (code != 0)
		return code;
	for (size_t i = 0; i < json_object_array_length(logs) && worst != CTL_UNREACHABLE; i++) {
		struct json_object *o = json_object_array_get_idx(logs, i);
		char user[64], place[160];

		(void)snprintf(place, sizeof(place), "%s/%s",
			       ctl_user(user, sizeof(user), (uint32_t)log_json_number(o, "uid")),
			       log_json_text(o, "domain"));
		code = check_one(c, place, log_json_text(o, "name"), json);
		if (code > worst)
			worst = code;
	}
	json_object_put(logs);
	return worst;
}

/* ---- a folder of segments, without the daemon ----------------------------------------------------- */

/* "%016x.log" */
static bool segment_name(const char *name, uint64_t *ret)
{
	char again[32];

	if (sscanf(name, "%16" SCNx64, ret) != 1)
		return false;
	(void)snprintf(again, sizeof(again), "%016" PRIx64 ".log", *ret);
	return strcmp(again, name) == 0;
}

static int only_segments(const struct dirent *e)
{
	uint64_t lsn;

	return segment_name(e->d_name, &lsn);
}

static int check_folder(const char *path, bool json)
{
	struct check k = {
		.name = path, .domain = "folder", .json = json, .progress = isatty(STDERR_FILENO)
	};
	cleanup_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint8_t log[16] = { 0 };
	struct dirent **e;
	bool good = true;
	int n = dir < 0 ? -1 : scandirat(dir, ".", &e, only_segments, alphasort);

	if (n < 0)
		return ctl_fail(CTL_REFUSED, "%s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		cleanup_close int fd = openat(dir, e[i]->d_name, O_RDONLY | O_CLOEXEC);
		uint64_t first = 0;

		(void)segment_name(e[i]->d_name, &first);
		if (i == 0)
			k.first = k.lsn = first;
		k.to = first > k.lsn ? first : k.lsn;
		if (good && first != k.lsn)
			fault(&k,
			      "a segment is missing, or does not end where the next one begins");
		else if (good && fd < 0)
			fault(&k, strerror(errno));
		else if (good)
			(void)check_segment(&k, fd, first, UINT64_MAX, log);
		good = !*k.error;
		free(e[i]);
	}
	free(e);
	k.to = k.lsn;
	if (n == 0)
		fault(&k, "there is no segment");
	return report(&k);
}

/* ---- the verb ------------------------------------------------------------------------------------ */

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const char *domain = NULL, *folder = NULL;
	bool json = false;
	const struct ctl_option options[] = { { .name = "domain", .value = &domain },
					      { .name = "folder", .value = &folder },
					      { .name = "json", .flag = &json },
					      { 0 } };
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 0, 1, &words, &n);
	if (code >= 0)
		return code;
	if (folder && (n > 0 || domain))
		return ctl_fail(CTL_USAGE, "log verify: --folder takes no log and no domain");
	if (folder)
		return check_folder(folder, json);
	return n > 0 ? check_one(c, domain, words[0], json) : check_all(c, domain, json);
}

const struct verb verb_log_verify = {
	.name = "log verify",
	.arguments = "[--domain DOMAIN] [--json] [LOG] | --folder PATH",
	.summary = "read each record of a log, and hold it against its checksum",
	.help = "  --domain DOMAIN  instead of PMEMLOGD_DOMAIN, else \"default\"; without LOG: of all domains\n"
		"  --folder PATH    segments in that folder, without the daemon: what was restored or copied\n"
		"  --json           a line for each log\n"
		"\n"
		"Without LOG: all logs. Reads what is on disk from the segments, the rest from the pool. Exit 1: a\n"
		"record or a segment is damaged or missing; the text says at which LSN.\n",
	.run = run,
};
