/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "client/ctl/dump.h"
#include "pool/guard.h"
#include "pool/record.h"

static int payload_guarded(const struct lane *l, const struct record_header *h, void *dst)
{
	return GUARD(record_payload(l, h, dst));
}

static bool wanted(const struct dump *d, const struct record_header *h)
{
	return h->position >= d->from && (d->file_id == 0 || h->file_id == d->file_id);
}

static void show(struct dump *d, const struct record_header *h, bool chained)
{
	cleanup_free uint8_t *payload = NULL;

	if (!wanted(d, h))
		return;
	if (d->data && h->type != RECORD_PAD && h->length > 0)
		payload = malloc(h->length);
	/* Trimmed and written over since it was checked: then without its bytes. */
	if (payload && payload_guarded(&d->lane, h, payload) < 0) {
		free(payload);
		payload = NULL;
	}
	d->records++;
	if (h->type != RECORD_PAD)
		d->bytes += h->length;
	dump_print_record(d, h, chained, payload);
}

static void show_chained(void *arg, const struct record_header *h)
{
	show(arg, h, true);
}

/* Behind the end of the walk nothing is chained to anything: every whole record that stands there. */
static void show_beyond(struct dump *d)
{
	uint64_t at = max_of(d->from, d->look.head), tail = d->look.tail;
	struct record_header h;

	if (at > UINT64_MAX - LANE_ALIGN)
		return;
	at = (at + LANE_ALIGN - 1) / LANE_ALIGN * LANE_ALIGN;
	while (at >= tail && at - tail < d->lane.ring_size) {
		if (look_at(&d->lane, at, tail, &h) == 0) {
			show(d, &h, false);
			at += record_bytes(h.length);
		} else {
			at += LANE_ALIGN;
		}
	}
}

int dump_walk(struct dump *d)
{
	int r = look_head(&d->look, &d->lane, pool_copy_in_use(d->pool));
	bool behind = d->from > 0 && d->from >= d->look.head;

	dump_print_begin(d);
	if (look_each(&d->look, show_chained, d) < 0)
		r = -EBADMSG;
	if (r < 0 || behind)
		show_beyond(d);
	dump_print_end(d);
	if (r < 0)
		return r;
	return d->records == 0 && behind ? -ENOENT : 0;
}
