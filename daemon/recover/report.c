/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "daemon/recover/recovery.h"

static const char *const outcome_names[] = {
	[RECOVER_CLEAN] = "clean",
	[RECOVER_HELD] = "held",
	[RECOVER_QUARANTINED] = "quarantined",
};

static const char *const action_names[] = {
	[ACTION_NONE] = "none", [ACTION_HOLD] = "hold",
	[ACTION_DROP] = "drop", [ACTION_QUARANTINE] = "quarantine",
	[ACTION_WAIT] = "wait", [ACTION_REPLAY] = "replay",
};

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

static void add_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static struct json_object *file_object(const struct recovery_file *f)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	add_u64(o, "id", f->plan->id);
	add_text(o, "path", f->known ? f->entry.path : "");
	add_text(o, "row", judge_texts[f->row].name);
	add_text(o, "action", action_names[f->action]);
	add_text(o, "text", judge_texts[f->row].text);
	json_object_object_add(o, "overrulable",
			       json_object_new_boolean(judge_texts[f->row].overrulable));
	add_u64(o, "records", f->plan->records);
	add_u64(o, "live_bytes", f->plan->bytes);
	add_u64(o, "end", f->plan->end);
	if (f->facts.found == FOUND_ERROR)
		add_text(o, "error", strerror(-f->facts.error));
	if (f->facts.live && f->known && f->facts.found == FOUND_OPEN) {
		json_object_object_add(o, "ctime_ns", json_object_new_int64(f->facts.ctime_ns));
		json_object_object_add(o, "catalog_ctime_ns",
				       json_object_new_int64(f->facts.catalog_ctime_ns));
		add_u64(o, "rewrite_until_ns", f->facts.rewrite_until_ns);
	}
	return o;
}

struct json_object *report_make(const struct recovery *r, int outcome, const char *reason)
{
	struct json_object *o = json_object_new_object();
	struct json_object *files = json_object_new_array();

	if (!o || !files) {
		json_object_put(o);
		json_object_put(files);
		return NULL;
	}
	add_text(o, "domain", r->domain.name);
	add_u64(o, "uid", r->domain.uid);
	add_u64(o, "lane", r->domain.lane);
	add_text(o, "outcome", outcome_names[outcome]);
	add_text(o, "reason", reason);
	add_u64(o, "live_bytes", r->plan.bytes);
	add_u64(o, "records", r->plan.records);
	add_u64(o, "walked", r->plan.walked);
	add_u64(o, "tail", r->plan.tail);
	add_u64(o, "head", r->plan.head);
	add_u64(o, "newest_record_ns", r->plan.newest_ns);
	add_u64(o, "heartbeat_ns", r->plan.beat_ns);
	if (r->left)
		json_object_object_add(o, "left", json_object_get(r->left));
	for (size_t i = 0; r->files && i < r->plan.n_files; i++) {
		struct json_object *f = file_object(&r->files[i]);

		if (f)
			json_object_array_add(files, f);
	}
	json_object_object_add(o, "files", files);
	return o;
}

void report_path(const char *path, char buf[REPORT_PATH_BYTES])
{
	size_t len = strlen(path);

	(void)snprintf(buf, REPORT_PATH_BYTES, "%s%.80s", len > 80 ? "..." : "",
		       path + (len > 80 ? len - 80 : 0));
}

void report_reason(const struct recovery *r, enum judge_action action, char *buf, size_t n)
{
	const struct recovery_file *first = NULL;
	char more[40] = "", error[64] = "", path[REPORT_PATH_BYTES];
	size_t count = 0;

	for (size_t i = 0; i < r->plan.n_files; i++) {
		if (r->files[i].action != action)
			continue;
		if (!first)
			first = &r->files[i];
		count++;
	}
	if (!first) {
		(void)snprintf(buf, n, "no file");
		return;
	}
	if (count > 1)
		(void)snprintf(more, sizeof(more), " (and %zu more)", count - 1);
	if (first->row == ROW_IO_ERROR)
		(void)snprintf(error, sizeof(error), ": %s", strerror(-first->facts.error));
	if (first->known) {
		report_path(first->entry.path, path);
		(void)snprintf(buf, n, "%s%s: %s%s", path, more, judge_texts[first->row].text,
			       error);
	} else {
		(void)snprintf(buf, n, "file id %" PRIu64 "%s: %s", first->plan->id, more,
			       judge_texts[first->row].text);
	}
}
