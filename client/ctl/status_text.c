/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/status_text.h"

#include <inttypes.h>
#include <string.h>

#include <json-c/json.h>

#include "base/sys.h"
#include "client/ctl/ctl.h"
#include "daemon/log.h"

static struct json_object *member(struct json_object *o, const char *name)
{
	struct json_object *m = NULL;

	if (!o || !json_object_is_type(o, json_type_object))
		return NULL;
	(void)json_object_object_get_ex(o, name, &m);
	return m;
}

/* Printable text of a member; "" when it is missing. */
static const char *text_of(struct json_object *o, const char *name, char *buf, size_t n)
{
	struct json_object *m = member(o, name);

	buf[0] = '\0';
	if (m)
		log_printable(buf, n, json_object_get_string(m));
	return buf;
}

static uint64_t number_of(struct json_object *o, const char *name)
{
	struct json_object *m = member(o, name);

	return m ? json_object_get_uint64(m) : 0;
}

static bool is_true(struct json_object *o, const char *name)
{
	struct json_object *m = member(o, name);

	return m && json_object_get_boolean(m);
}

static size_t count_of(struct json_object *list)
{
	return list && json_object_is_type(list, json_type_array) ? json_object_array_length(list)
								  : 0;
}

static void print_pool(FILE *out, struct json_object *o)
{
	struct json_object *pool = member(o, "pool");
	char words[512], path[512], uuid[64];

	text_of(pool, "durability", words, sizeof(words));
	if (is_true(pool, "durable"))
		(void)fprintf(out, "%s\n", *words ? words : "Durable.");
	else if (strstr(words, "NOT DURABLE"))
		(void)fprintf(out, "%s\n", words);
	else
		(void)fprintf(out, "NOT DURABLE%s%s\n", *words ? ": " : "", words);
	(void)fprintf(out, "Pool %s, %s, generation %" PRIu64 "; pmemlogd %s\n",
		      text_of(pool, "path", path, sizeof(path)),
		      text_of(pool, "uuid", uuid, sizeof(uuid)), number_of(pool, "generation"),
		      text_of(o, "version", words, sizeof(words)));
}

static void print_sessions(FILE *out, struct json_object *domain)
{
	struct json_object *versions = member(domain, "sessions_by_version");
	uint64_t n = number_of(domain, "sessions");
	const char *separator = " (";

	(void)fprintf(out, "    %" PRIu64 " session%s", n, n == 1 ? "" : "s");
	/* of interest only while an upgrade is half done */
	if (versions && json_object_is_type(versions, json_type_object) &&
	    json_object_object_length(versions) > 1) {
		json_object_object_foreach(versions, version, count) {
			(void)fprintf(out, "%s%" PRIu64 " of version %s", separator,
				      json_object_get_uint64(count), version);
			separator = ", ";
		}
		(void)fprintf(out, ")");
	}
}

static void print_counters(FILE *out, struct json_object *d)
{
	uint64_t live = number_of(d, "live_bytes");
	char used[32], ring[32], age[32], written[32];

	(void)fprintf(out, ", %s of %s in use", ctl_bytes(used, sizeof(used), live),
		      ctl_bytes(ring, sizeof(ring), number_of(d, "ring_size")));
	if (live)
		(void)fprintf(
			out, ", oldest record %s",
			ctl_duration(age, sizeof(age), number_of(d, "oldest_age_ms") * 1000000));
	(void)fprintf(out,
		      "\n    %" PRIu64 " records (%s), %" PRIu64 " destages, %" PRIu64
		      " failed; %" PRIu64 " wraps, %" PRIu64 " waits for room\n",
		      number_of(d, "records"),
		      ctl_bytes(written, sizeof(written), number_of(d, "bytes")),
		      number_of(d, "destages"), number_of(d, "destage_errors"),
		      number_of(d, "wraps"), number_of(d, "full_waits"));
}

/* ", for 5 min" of a file in bypass; "" where that is not known. */
static void since_text(struct json_object *f, char *buf, size_t n)
{
	uint64_t since = number_of(f, "bypass_since_ns"), now = now_realtime_ns();
	char duration[32];

	buf[0] = '\0';
	if (since != 0)
		(void)snprintf(
			buf, n, ", for %s",
			ctl_duration(duration, sizeof(duration), now > since ? now - since : 0));
}

static void print_files(FILE *out, struct json_object *files)
{
	char state[32], path[512], reason[512], live[32], since[64];

	if (count_of(files) == 0)
		return;
	(void)fprintf(out, "    %-8s %10s %12s  %s\n", "STATE", "LIVE", "RECORDS", "FILE");
	for (size_t i = 0; i < count_of(files); i++) {
		struct json_object *f = json_object_array_get_idx(files, i);

		text_of(f, "state", state, sizeof(state));
		text_of(f, "path", path, sizeof(path));
		text_of(f, "reason", reason, sizeof(reason));
		since_text(f, since, sizeof(since));
		(void)fprintf(out, "    %-8s %10s %12" PRIu64 "  %s%s%s%s%s%s\n", state,
			      ctl_bytes(live, sizeof(live), number_of(f, "live_bytes")),
			      number_of(f, "records"), path,
			      is_true(f, "degraded") ? "  DEGRADED" : "", *reason ? "  (" : "",
			      reason, since, *reason ? ")" : "");
	}
}

static void print_domain(FILE *out, struct json_object *d)
{
	char user[64], name[CTL_DOMAIN_MAX], state[32], text[512];

	(void)fprintf(
		out, "\n%s/%s: %s", ctl_user(user, sizeof(user), (uint32_t)number_of(d, "uid")),
		text_of(d, "name", name, sizeof(name)), text_of(d, "state", state, sizeof(state)));
	if (*text_of(d, "reason", text, sizeof(text)))
		(void)fprintf(out, ": %s", text);
	(void)fprintf(out, "\n");
	print_sessions(out, d);
	print_counters(out, d);
	if (is_true(d, "safe_to_move"))
		(void)fprintf(out, "    safe to move\n");
	if (*text_of(d, "last_error", text, sizeof(text)))
		(void)fprintf(out, "    last error: %s\n", text);
	print_files(out, member(d, "files"));
}

/* What `notice_add` has put there. */
static void print_notices(FILE *out, struct json_object *o)
{
	struct json_object *unattended = member(o, "unattended"), *old = member(o, "old_library");
	char path[512], reason[128], program[64];

	for (size_t i = 0; i < count_of(unattended); i++) {
		struct json_object *p = json_object_array_get_idx(unattended, i);

		(void)fprintf(out,
			      "\nNOT ACCELERATED: %s, written by %s (pid %" PRIu64 "), which %s: "
			      "pmemlogctl check %" PRIu64 "\n",
			      text_of(p, "path", path, sizeof(path)),
			      text_of(p, "program", program, sizeof(program)), number_of(p, "pid"),
			      text_of(p, "reason", reason, sizeof(reason)), number_of(p, "pid"));
	}
	for (size_t i = 0; i < count_of(old); i++) {
		struct json_object *p = json_object_array_get_idx(old, i);

		(void)fprintf(out,
			      "\nOlder library: %s (pid %" PRIu64 ") started with the one before; "
			      "restart it when it suits\n",
			      text_of(p, "program", program, sizeof(program)), number_of(p, "pid"));
	}
	if (member(o, "safe_to_move"))
		(void)fprintf(
			out, "\n%s\n",
			is_true(o, "safe_to_move")
				? "Safe to move: nothing lies outside its files."
				: "Not safe to move disks or data directories: see each domain.");
	if (unattended && !is_true(o, "all_processes"))
		(void)fprintf(out, "Other users' processes were not looked at (root is needed).\n");
}

bool status_text_print(FILE *out, const char *document)
{
	struct json_object *o = json_tokener_parse(document);
	struct json_object *domains;
	char text[512];

	if (!o || !json_object_is_type(o, json_type_object)) {
		json_object_put(o);
		return false;
	}
	print_pool(out, o);
	domains = member(o, "domains");
	for (size_t i = 0; i < count_of(domains); i++)
		print_domain(out, json_object_array_get_idx(domains, i));
	if (count_of(domains) == 0)
		(void)fprintf(out, "\nNo domain: no program has used pmemlogd yet.\n");
	print_notices(out, o);
	if (*text_of(o, "last_error", text, sizeof(text)))
		(void)fprintf(out, "\nLast error: %s\n", text);
	json_object_put(o);
	return true;
}
