/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads a pool from end to end and changes nothing. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "client/ctl/ctl.h"
#include "client/ctl/look.h"
#include "pool/dir/catalog.h"
#include "pool/guard.h"

static const char *const verdicts[] = {
	[VERDICT_NONE] = "ok",	     [VERDICT_UNDECIDED] = "undecided",
	[VERDICT_HELD] = "held",     [VERDICT_QUARANTINED] = "quarantined",
	[VERDICT_REPLAY] = "replay",
};

struct check {
	struct pool *pool;
	bool in_use;	/* a daemon has it: lanes move while they are read */
	unsigned wrong; /* findings */
	unsigned live;	/* domains with records that no disk may have yet */
	struct json_object *root;
};

static void put_text(struct json_object *o, const char *name, const char *text)
{
	(void)json_object_object_add(o, name, json_object_new_string(text));
}

static void put_number(struct json_object *o, const char *name, uint64_t v)
{
	(void)json_object_object_add(o, name, json_object_new_uint64(v));
}

static void put_uuid(struct json_object *o, const char *name, const uint8_t id[16])
{
	char text[33];

	for (int i = 0; i < 16; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", id[i]);
	put_text(o, name, text);
}

/* Somebody holds the lock that pool_open takes for writing. */
static bool is_in_use(const struct pool *p)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(p->lock_fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

struct walked {
	uint64_t tail, head, records;
	char text[256];
	int r; /* 0 or a negative errno */
};

static void count(void *arg, const struct record_header *h)
{
	struct walked *w = arg;

	(void)h;
	w->records++;
}

static void walk_lane(struct check *c, const struct pool_domain *d, struct walked *w)
{
	struct pool_error error = { "" };
	struct look look;
	struct lane l;
	int fd;

	memset(w, 0, sizeof(*w));
	w->r = pool_lane_open(c->pool, d, &l, &fd, &error);
	if (w->r < 0) {
		(void)snprintf(w->text, sizeof(w->text), "%s", error.text);
		return;
	}
	w->r = look_head(&look, &l, c->in_use);
	if (w->r == 0)
		w->r = look_each(&look, count, w);
	w->tail = look.tail;
	w->head = look.head;
	if (w->r < 0)
		(void)snprintf(w->text, sizeof(w->text), "%s", look.why);
	pool_lane_close(&l, fd);
}

static void check_domain(struct check *c, const struct pool_domain *d, struct json_object *list)
{
	struct json_object *o = json_object_new_object();
	struct walked w;

	walk_lane(c, d, &w);
	put_text(o, "name", d->name);
	put_number(o, "uid", d->uid);
	put_number(o, "lane", d->lane);
	put_number(o, "ring_size", d->ring_size);
	put_text(o, "verdict", d->verdict <= VERDICT_REPLAY ? verdicts[d->verdict] : "unknown");
	put_text(o, "reason", d->reason);
	put_number(o, "tail", w.tail);
	put_number(o, "head", w.head);
	put_number(o, "live_bytes", w.head - w.tail);
	put_number(o, "records", w.records);
	put_text(o, "damage", w.text);
	if (w.r < 0 || d->verdict == VERDICT_QUARANTINED || d->verdict == VERDICT_HELD)
		c->wrong++;
	/* what cannot be read may hold anything */
	if (w.r < 0 || w.head != w.tail)
		c->live++;
	(void)json_object_array_add(list, o);
}

static void check_domains(struct check *c)
{
	struct json_object *list = json_object_new_array();
	struct pool_domain d;
	unsigned damaged = 0;

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		int r = catalog_domain_get(c->pool, i, &d);

		if (r == 0)
			check_domain(c, &d, list);
		else if (r != -ENOENT)
			damaged++;
	}
	(void)json_object_object_add(c->root, "domains", list);
	put_number(c->root, "damaged_domain_entries", damaged);
	c->wrong += damaged;
	c->live += damaged;
	put_number(c->root, "live_domains", c->live);
}

static void check_files(struct check *c)
{
	unsigned used = 0, damaged = 0, degraded = 0;
	struct pool_file f;

	for (uint32_t i = 0; i < POOL_FILES; i++) {
		int r = catalog_file_get(c->pool, i, &f);

		if (r == 0) {
			used++;
			degraded += (f.flags & POOL_FILE_DEGRADED) != 0;
		} else if (r != -ENOENT) {
			damaged++;
		}
	}
	put_number(c->root, "files", used);
	put_number(c->root, "degraded_files", degraded);
	put_number(c->root, "damaged_file_entries", damaged);
	c->wrong += damaged + degraded;
}

static uint64_t number_of(struct json_object *o, const char *name)
{
	return json_object_get_uint64(json_object_object_get(o, name));
}

static const char *text_of(struct json_object *o, const char *name)
{
	return json_object_get_string(json_object_object_get(o, name));
}

static void print_domain(struct json_object *d)
{
	char user[64], live[32], ring[32];

	printf("  %s/%s: lane %" PRIu64 ", %s of %s in use, %" PRIu64 " records, %s%s%s\n",
	       ctl_user(user, sizeof(user), (uint32_t)number_of(d, "uid")), text_of(d, "name"),
	       number_of(d, "lane"), ctl_bytes(live, sizeof(live), number_of(d, "live_bytes")),
	       ctl_bytes(ring, sizeof(ring), number_of(d, "ring_size")), number_of(d, "records"),
	       text_of(d, "verdict"), *text_of(d, "reason") ? ": " : "", text_of(d, "reason"));
	if (*text_of(d, "damage"))
		printf("    DAMAGED: %s\n", text_of(d, "damage"));
}

static void print_text(const struct check *c)
{
	struct json_object *list = json_object_object_get(c->root, "domains");
	struct json_object *o = c->root;

	if (c->pool->emulated)
		printf("NOT DURABLE: this pool is emulated and does not survive a power cut\n");
	printf("Pool %s, %s, version %" PRIu64 ", generation %" PRIu64 "%s\n", text_of(o, "path"),
	       text_of(o, "uuid"), number_of(o, "version"), number_of(o, "generation"),
	       c->in_use ? "; in use: its lanes move while they are read" : "");
	printf("%zu domains, %" PRIu64 " files (%" PRIu64 " degraded)\n",
	       json_object_array_length(list), number_of(o, "files"),
	       number_of(o, "degraded_files"));
	for (size_t i = 0; i < json_object_array_length(list); i++)
		print_domain(json_object_array_get_idx(list, i));
	if (number_of(o, "damaged_domain_entries") + number_of(o, "damaged_file_entries") > 0)
		printf("DAMAGED entries of the catalog: %" PRIu64 " domains, %" PRIu64 " files\n",
		       number_of(o, "damaged_domain_entries"),
		       number_of(o, "damaged_file_entries"));
	if (c->wrong)
		printf("%u findings. Nothing was changed; see RECOVERY in pmemlogctl(1).\n",
		       c->wrong);
	else
		printf("Nothing is wrong with it.\n");
}

static void check(struct check *c)
{
	const struct pool_superblock *sb = &c->pool->sb;

	c->in_use = is_in_use(c->pool);
	c->root = json_object_new_object();
	put_text(c->root, "path", c->pool->path);
	put_uuid(c->root, "uuid", sb->uuid);
	put_number(c->root, "version", sb->version);
	put_number(c->root, "generation", sb->generation);
	(void)json_object_object_add(c->root, "emulated",
				     json_object_new_boolean(c->pool->emulated));
	(void)json_object_object_add(c->root, "in_use", json_object_new_boolean(c->in_use));
	check_domains(c);
	check_files(c);
	put_number(c->root, "findings", c->wrong);
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool json = false, empty = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &json },
					      { .name = "empty", .flag = &empty },
					      { 0 } };
	struct pool_error error = { "" };
	struct check k = { 0 };
	const struct config *config;
	char **words;
	int code, n, r;

	code = ctl_parse(c, v, argc, argv, options, 0, 0, &words, &n);
	if (code >= 0)
		return code;
	config = ctl_config(c);
	if (!config)
		return CTL_CONFIG;
	r = guard_install();
	if (r == 0) /* an emulated pool may be looked at without being accepted for work */
		r = pool_open(&k.pool, config->pool, config->state_dir, true, true, &error);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s", error.text[0] ? error.text : strerror(-r));
	check(&k);
	if (json)
		puts(json_object_to_json_string_ext(
			k.root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	else
		print_text(&k);
	json_object_put(k.root);
	pool_close(k.pool);
	if (empty && k.live)
		return ctl_fail(
			CTL_REFUSED,
			"%u domains have records in the pool that their files may not have yet; "
			"stop their databases, then `pmemlogctl flush`",
			k.live);
	return k.wrong ? CTL_REFUSED : CTL_GOOD;
}

const struct verb verb_pool_check = {
	.name = "pool check",
	.arguments = "[--json] [--empty]",
	.summary = "read superblock, catalog and lanes, and say what is wrong",
	.help = "  --json   for programs\n"
		"  --empty  exit 1 also when a domain has records that its files may not have yet:\n"
		"           may the pool be taken away?\n"
		"\n"
		"Changes nothing, and may run beside the daemon. Exit 1 when something is damaged, held,\n"
		"quarantined or degraded.\n",
	.run = run,
};
