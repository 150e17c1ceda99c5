/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records of a log, one after the other, and how they are shown. */

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "client/ctl/log.h"
#include "pool/crc.h"

bool log_parse_lsn(const char *text, const struct wire_log_reply *stat, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	if (strcmp(text, "first") == 0 || strcmp(text, "end") == 0) {
		*ret = *text == 'f' ? stat->first : stat->durable;
		return true;
	}
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || *text < '0' || *text > '9' || v > INT64_MAX) {
		ctl_fail(0, "\"%s\" is no LSN: a number, or first, or end", text);
		return false;
	}
	*ret = v;
	return true;
}

/* ---- walking ------------------------------------------------------------------------------------- */

/* A record longer than an answer, whose bounds are known: in pieces. */
static int read_long(struct log_link *l, uint64_t lsn, uint64_t next, log_record_fn *fn, void *arg,
		     bool *go_on, struct log_answer *a)
{
	struct log_record r = { .lsn = lsn, .length = (uint32_t)(next - lsn) };
	cleanup_free uint8_t *bytes = malloc(r.length);
	uint32_t at = 0;

	if (!bytes)
		return -ENOMEM;
	while (at < r.length) {
		struct wire_log q = { .lsn = lsn + at,
				      .value = min_of(r.length - at, WIRE_LOG_PAYLOAD) };
		int rc = log_ask(l, WIRE_LOG_READ, &q, a);

		if (rc < 0 || a->status < 0)
			return rc;
		if (a->length == 0)
			return -EPROTO;
		memcpy(bytes + at, a->payload, a->length);
		at += a->length;
	}
	r.data = bytes;
	*go_on = fn(arg, &r);
	return 0;
}

/* The records of one answer. False: enough, or a frame that is none (a->status). */
static bool take_frames(uint64_t *lsn, uint64_t to, log_record_fn *fn, void *arg,
			struct log_answer *a)
{
	for (uint32_t at = 0; at < a->length;) {
		struct segment_frame f;
		struct log_record r;
		uint32_t crc;

		if (a->length - at < sizeof(f))
			break;
		memcpy(&f, a->payload + at, sizeof(f));
		if (f.length == 0 || f.length > WIRE_LOG_PAYLOAD ||
		    segment_frame_bytes(f.length) > a->length - at ||
		    (at == 0 ? f.lsn > *lsn : f.lsn != *lsn) || f.lsn + f.length <= *lsn)
			break;
		crc = crc32c(0, &f.length, sizeof(f) - offsetof(struct segment_frame, length));
		r = (struct log_record){ f.lsn, f.time_ns, a->payload + at + sizeof(f), f.length };
		/* With what pads it. */
		if (crc32c(crc, r.data, (r.length + 7u) & ~7u) != f.crc)
			break;
		if (f.lsn >= to)
			return false;
		if (!fn(arg, &r))
			return false;
		*lsn = f.lsn + f.length;
		at += (uint32_t)segment_frame_bytes(f.length);
		if (at == a->length)
			return true;
	}
	a->status = -EBADMSG;
	return false;
}

int log_walk(struct log_link *l, uint64_t *lsn, uint64_t to, uint32_t timeout_ms, log_record_fn *fn,
	     void *arg, struct log_answer *a)
{
	bool go_on = true;

	memset(a, 0, sizeof(*a));
	while (go_on && *lsn < to) {
		struct wire_log q = { .flags = WIRE_LOG_RECORDS,
				      .lsn = *lsn,
				      .value = WIRE_LOG_PAYLOAD,
				      .timeout_ms = timeout_ms };
		int r = log_ask(l, WIRE_LOG_READ, &q, a);

		if (r < 0)
			return r;
		if (a->status == -EMSGSIZE && a->data.next > a->data.lsn) {
			uint64_t next = a->data.next;

			r = read_long(l, a->data.lsn, next, fn, arg, &go_on, a);
			if (r < 0 || a->status < 0)
				return r;
			*lsn = next;
			continue;
		}
		if (a->status < 0)
			return 0;
		if (a->length == 0)
			return 0;
		go_on = take_frames(lsn, to, fn, arg, a);
		timeout_ms = 0;
	}
	return 0;
}

/* ---- showing ------------------------------------------------------------------------------------- */

static void print_base64(const uint8_t *p, uint32_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (uint32_t i = 0; i < n; i += 3) {
		uint32_t left = n - i;
		uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
			     (left > 2 ? p[i + 2] : 0u);

		putchar(digits[v >> 18]);
		putchar(digits[v >> 12 & 63]);
		putchar(left > 1 ? digits[v >> 6 & 63] : '=');
		putchar(left > 2 ? digits[v & 63] : '=');
	}
}

static void print_time(uint64_t time_ns)
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	struct tm tm;
	char text[64];

	if (time_ns == 0 || !gmtime_r(&seconds, &tm)) {
		printf("-");
		return;
	}
	(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%s.%09" PRIu64 "Z", text, time_ns % 1000000000);
}

static void print_hex(const uint8_t *p, uint32_t n, uint64_t lsn)
{
	for (uint32_t at = 0; at < n; at += 16) {
		uint32_t line = min_of(n - at, 16u);

		printf("%12" PRIu64 " ", lsn + at);
		for (uint32_t i = 0; i < 16; i++)
			if (i < line)
				printf(" %02x", p[at + i]);
			else
				printf("   ");
		printf("  ");
		for (uint32_t i = 0; i < line; i++)
			putchar(isprint(p[at + i]) ? p[at + i] : '.');
		putchar('\n');
	}
}

void log_print_record(const struct log_record *r, bool json)
{
	if (json) {
		printf("{\"lsn\":%" PRIu64 ",\"time_ns\":%" PRIu64 ",\"length\":%" PRIu32
		       ",\"data\":\"",
		       r->lsn, r->time_ns, r->length);
		print_base64(r->data, r->length);
		printf("\"}\n");
		return;
	}
	printf("lsn %" PRIu64 "  ", r->lsn);
	print_time(r->time_ns);
	printf("  %" PRIu32 " bytes\n", r->length);
	print_hex(r->data, r->length, r->lsn);
}
