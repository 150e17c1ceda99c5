/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records as lines, or as elements of one JSON document that is written as it comes: a lane may hold millions. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"
#include "client/ctl/dump.h"
#include "daemon/log.h"

static const char *const types[] = {
	[RECORD_WRITE] = "WRITE", [RECORD_PAD] = "PAD",	      [RECORD_FENCE] = "FENCE",
	[RECORD_TOUCH] = "TOUCH", [RECORD_UNLINK] = "UNLINK", [RECORD_LINES] = "LINES",
};

static const char *type_name(const struct record_header *h)
{
	return h->type < sizeof(types) / sizeof(*types) && types[h->type] ? types[h->type] : "?";
}

/* UTC with nanoseconds. */
static const char *time_text(uint64_t ns, char *buf, size_t n)
{
	time_t s = (time_t)(ns / 1000000000);
	char day[32] = "?";
	struct tm tm;

	if (gmtime_r(&s, &tm))
		(void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(buf, n, "%s.%09" PRIu64 "Z", day, ns % 1000000000);
	return buf;
}

const char *dump_path(struct dump *d, uint64_t id, char *buf, size_t n)
{
	struct pool_file f;
	uint32_t from = 0;
	int index;

	buf[0] = '\0';
	while ((index = catalog_file_next(&d->pool->pool, d->lane.number, from, &f)) >= 0) {
		from = (uint32_t)index + 1;
		if (f.id == id) {
			log_printable(buf, n, f.path);
			break;
		}
	}
	return buf;
}

static struct json_object *hex(const uint8_t *bytes, uint32_t n)
{
	cleanup_free char *text = malloc((size_t)n * 2 + 1);

	for (uint32_t i = 0; text && i < n; i++)
		(void)snprintf(text + (size_t)i * 2, 3, "%02x", bytes[i]);
	return text ? json_object_new_string_len(text, (int)n * 2) : NULL;
}

static void put_files(struct dump *d, struct json_object *o)
{
	struct json_object *list = json_object_new_array();
	struct pool_file f;
	uint32_t from = 0;
	char path[sizeof(f.path)];
	int index;

	while ((index = catalog_file_next(&d->pool->pool, d->lane.number, from, &f)) >= 0) {
		struct json_object *one = json_object_new_object();

		from = (uint32_t)index + 1;
		log_printable(path, sizeof(path), f.path);
		doc_put_number(one, "id", f.id);
		doc_put_text(one, "path", path);
		(void)json_object_array_add(list, one);
	}
	(void)json_object_object_add(o, "files", list);
}

/* Writes the members of o, without the brace that ends it. */
static void put_open(FILE *out, struct json_object *o)
{
	const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE);

	(void)fprintf(out, "%.*s", (int)strlen(text) - 1, text);
}

static void begin_json(struct dump *d)
{
	struct json_object *o = json_object_new_object();

	doc_put_text(o, "pool", d->pool->pool.path);
	doc_put_text(o, "domain", d->domain.name);
	doc_put_number(o, "uid", d->domain.uid);
	doc_put_number(o, "lane", d->lane.number);
	doc_put_number(o, "ring_size", d->lane.ring_size);
	doc_put_number(o, "incarnation", d->lane.incarnation);
	doc_put_number(o, "tail", d->look.tail);
	doc_put_number(o, "head", d->look.head);
	put_files(d, o);
	put_open(d->out, o);
	(void)fprintf(d->out, ",\n\"records\": [");
	json_object_put(o);
}

void dump_print_begin(struct dump *d)
{
	char ring[32], live[32];

	if (d->json) {
		begin_json(d);
		return;
	}
	(void)fprintf(d->out,
		      "Lane %" PRIu32 "%s%s: ring of %s, incarnation %016" PRIx64 ", tail %" PRIu64
		      ", head %" PRIu64 ", %s live\n",
		      d->lane.number, *d->domain.name ? ", domain " : "", d->domain.name,
		      ctl_bytes(ring, sizeof(ring), d->lane.ring_size), d->lane.incarnation,
		      d->look.tail, d->look.head,
		      ctl_bytes(live, sizeof(live), d->look.head - d->look.tail));
	(void)fprintf(d->out, "%14s %-7s %8s %14s %8s  %-30s %s\n", "POSITION", "TYPE", "FILE",
		      "OFFSET", "BYTES", "TIME", "PATH");
}

static void record_json(struct dump *d, const struct record_header *h, bool chained,
			const uint8_t *payload)
{
	struct json_object *o = json_object_new_object();

	doc_put_number(o, "position", h->position);
	doc_put_text(o, "type", type_name(h));
	doc_put_bool(o, "inline", h->flags & RECORD_INLINE);
	doc_put_number(o, "file", h->file_id);
	doc_put_number(o, "offset", h->offset);
	doc_put_number(o, "length", h->length);
	doc_put_number(o, "time_ns", h->time_ns);
	doc_put_number(o, "drained", h->drained);
	doc_put_number(o, "crc", h->crc);
	doc_put_number(o, "chain", h->chain);
	doc_put_bool(o, "chained", chained);
	if (payload)
		(void)json_object_object_add(o, "data", hex(payload, h->length));
	(void)fprintf(d->out, "%s\n%s", d->records > 1 ? "," : "",
		      json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static void data_lines(FILE *out, const uint8_t *payload, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 32) {
		(void)fprintf(out, "%22" PRIu32 "  ", i);
		for (uint32_t k = i; k < n && k < i + 32; k++)
			(void)fprintf(out, "%02x", payload[k]);
		(void)fprintf(out, "\n");
	}
}

void dump_print_record(struct dump *d, const struct record_header *h, bool chained,
		       const uint8_t *payload)
{
	char path[sizeof(((struct pool_file *)0)->path)], time[64];

	if (d->json) {
		record_json(d, h, chained, payload);
		return;
	}
	(void)fprintf(
		d->out, "%14" PRIu64 " %-7s %8" PRIu64 " %14" PRIu64 " %8" PRIu32 "  %s %s%s\n",
		h->position, type_name(h), h->file_id, h->offset, h->length,
		time_text(h->time_ns, time, sizeof(time)),
		dump_path(d, h->file_id, path, sizeof(path)), chained ? "" : "  (beyond the end)");
	if (payload)
		data_lines(d->out, payload, h->length);
}

static void end_json(struct dump *d)
{
	struct json_object *o = json_object_new_object();

	doc_put_number(o, "shown", d->records);
	doc_put_number(o, "bytes", d->bytes);
	doc_put_number(o, "trimmed_meanwhile", d->look.trimmed);
	doc_put_text(o, "damage", d->look.why ? d->look.why : "");
	/* its members end the document that begin_json began */
	(void)fprintf(d->out, "\n],%s\n",
		      json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE) + 1);
	json_object_put(o);
}

void dump_print_end(struct dump *d)
{
	char bytes[32];

	if (d->json) {
		end_json(d);
		return;
	}
	(void)fprintf(d->out, "%" PRIu64 " records, %s of payload\n", d->records,
		      ctl_bytes(bytes, sizeof(bytes), d->bytes));
	if (d->look.trimmed)
		(void)fprintf(d->out,
			      "The lane is in use: %s were made durable in their files and given "
			      "free meanwhile\n",
			      ctl_bytes(bytes, sizeof(bytes), d->look.trimmed));
	if (d->look.why)
		(void)fprintf(d->out, "DAMAGED at position %" PRIu64 ": %s\n", d->look.head,
			      d->look.why);
}
