/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A small key-value store: a table in memory, its changes in a native log (write-ahead), now and then the whole
 * table in a file (checkpoint), after which the log below it is given up.
 *
 *	cc -std=c99 -o kv kv.c $(pkg-config --cflags --libs pmemlogd)
 *	kv FOLDER LOG
 *
 * Commands on standard input, one a line; an answer to each, one line but for dump:
 *
 *	set KEY VALUE	ok LSN		durable when it is printed; a key has no blanks
 *	del KEY		ok LSN
 *	get KEY		VALUE, or a dash
 *	checkpoint	ok LSN
 *	dump		a line "KEY VALUE" for each key, then one with a dot
 *
 * "error: ..." in place of an answer: nothing was changed.
 */
#define _XOPEN_SOURCE 700
#include <pmemlogd.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS	  4096
#define KEY_MAX	  255
#define VALUE_MAX 4096

enum {
	SET = 1,
	DEL = 2
};

/* What a record of the log, and a line of the checkpoint, begins with; key and value follow. */
struct change {
	uint32_t what;
	uint16_t key, value; /* bytes */
};

struct pair {
	struct pair *next;
	char *key, *value;
};

static struct pair *table[BUCKETS];
static uint64_t next_lsn; /* all below is in the table */
static struct pmemlogd *connection;
static struct pmemlogd_log *wal;
static int folder; /* descriptor */

static void die(const char *what, int r)
{
	char why[512] = "";

	fprintf(stderr, "kv: %s: %s %s\n", what, strerror(-r),
		pmemlogd_message(connection, why, sizeof(why)));
	exit(1);
}

/* ---- the table ---- */

static struct pair **find(const char *key)
{
	struct pair **at;
	uint32_t hash = 5381;

	for (const char *p = key; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	for (at = &table[hash % BUCKETS]; *at && strcmp((*at)->key, key) != 0; at = &(*at)->next)
		;
	return at;
}

/* value NULL: the key goes. */
static void apply(const char *key, const char *value)
{
	struct pair **at = find(key), *p = *at;
	char *copy = value ? strdup(value) : NULL;

	if (value && !copy)
		die("strdup", -ENOMEM);
	if (p && !value) {
		*at = p->next;
		free(p->key);
		free(p->value);
		free(p);
	} else if (p) {
		free(p->value);
		p->value = copy;
	} else if (value) {
		p = calloc(1, sizeof(*p));
		if (!p || !(p->key = strdup(key)))
			die("calloc", -ENOMEM);
		p->value = copy;
		*at = p;
	}
}

/* A change as it stands in log or checkpoint. False: it is none. */
static int apply_bytes(const void *data, size_t n)
{
	char key[KEY_MAX + 1], value[VALUE_MAX + 1];
	const char *bytes = data;
	struct change c;

	if (n < sizeof(c))
		return 0;
	memcpy(&c, bytes, sizeof(c));
	if (c.key > KEY_MAX || c.value > VALUE_MAX || n != sizeof(c) + c.key + c.value)
		return 0;
	memcpy(key, bytes + sizeof(c), c.key);
	memcpy(value, bytes + sizeof(c) + c.key, c.value);
	key[c.key] = value[c.value] = '\0';
	apply(key, c.what == SET ? value : NULL);
	return 1;
}

/* ---- the log ---- */

/* First the log, then the table: whoever is told "ok" finds it again after any crash. */
static int change(const char *key, const char *value)
{
	struct change c = { value ? SET : DEL, (uint16_t)strlen(key),
			    (uint16_t)(value ? strlen(value) : 0) };
	struct iovec iov[3] = { { &c, sizeof(c) },
				{ (void *)key, c.key },
				{ (void *)value, c.value } };
	uint64_t lsn;
	int r = pmemlogd_appendv(wal, iov, 3, &lsn);

	if (r < 0)
		return r;
	apply(key, value);
	next_lsn = lsn + sizeof(c) + c.key + c.value;
	return 0;
}

static void replay(void)
{
	struct pmemlogd_cursor *cursor;
	struct pmemlogd_record record;
	int r = pmemlogd_cursor_new(wal, next_lsn, &cursor);

	/* -ENXIO, -ERANGE: this is not the log that belongs to the checkpoint. */
	if (r < 0)
		die("the log does not continue the checkpoint", r);
	while ((r = pmemlogd_next(cursor, &record, 0)) == 1) {
		if (!apply_bytes(record.data, record.length))
			die("a record that is no change", -EBADMSG);
		next_lsn = record.lsn + record.length;
	}
	if (r < 0)
		die("replay", r);
	(void)pmemlogd_cursor_free(cursor);
}

/* ---- the checkpoint: LSN, then changes, each behind its length ---- */

static void put(FILE *f, const struct pair *p)
{
	struct change c = { SET, (uint16_t)strlen(p->key), (uint16_t)strlen(p->value) };
	uint32_t n = (uint32_t)(sizeof(c) + c.key + c.value);

	(void)fwrite(&n, sizeof(n), 1, f);
	(void)fwrite(&c, sizeof(c), 1, f);
	(void)fwrite(p->key, c.key, 1, f);
	(void)fwrite(p->value, c.value, 1, f);
}

/* Whole and on disk under its name before the log is given up: a crash at any point leaves either the
 * old file and all of the log, or the new one. */
static int checkpoint(void)
{
	int fd = openat(folder, "checkpoint.new", O_WRONLY | O_CREAT | O_TRUNC, 0600), bad;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");

	if (!f)
		return -errno;
	(void)fwrite(&next_lsn, sizeof(next_lsn), 1, f);
	for (int i = 0; i < BUCKETS; i++)
		for (const struct pair *p = table[i]; p; p = p->next)
			put(f, p);
	bad = ferror(f) | fflush(f) | fsync(fd);
	if (fclose(f) | bad)
		return -EIO;
	if (renameat(folder, "checkpoint.new", folder, "checkpoint") < 0 || fsync(folder) < 0)
		return -errno;
	return pmemlogd_trim(wal, next_lsn, NULL);
}

static void load(void)
{
	static char bytes[sizeof(struct change) + KEY_MAX + VALUE_MAX];
	int fd = openat(folder, "checkpoint", O_RDONLY);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
	uint32_t n;

	if (!f) {
		if (errno != ENOENT)
			die("checkpoint", -errno);
		return;
	}
	if (fread(&next_lsn, sizeof(next_lsn), 1, f) != 1)
		die("checkpoint", -EBADMSG);
	while (fread(&n, sizeof(n), 1, f) == 1)
		if (n > sizeof(bytes) || fread(bytes, n, 1, f) != 1 || !apply_bytes(bytes, n))
			die("checkpoint", -EBADMSG);
	if (ferror(f))
		die("checkpoint", -EIO);
	(void)fclose(f);
}

/* ---- commands ---- */

static void dump(void)
{
	for (int i = 0; i < BUCKETS; i++)
		for (const struct pair *p = table[i]; p; p = p->next)
			printf("%s %s\n", p->key, p->value);
	puts(".");
}

static void answer(char *line)
{
	char *verb = strtok(line, " \n"), *key = strtok(NULL, " \n"), *value = strtok(NULL, "\n");
	int r = -EINVAL;

	if (!verb || (key && strlen(key) > KEY_MAX) || (value && strlen(value) > VALUE_MAX)) {
		r = -EMSGSIZE;
	} else if (strcmp(verb, "set") == 0 && key && value) {
		r = change(key, value);
	} else if (strcmp(verb, "del") == 0 && key) {
		r = change(key, NULL);
	} else if (strcmp(verb, "checkpoint") == 0) {
		r = checkpoint();
	} else if (strcmp(verb, "get") == 0 && key) {
		struct pair *p = *find(key);

		puts(p ? p->value : "-");
		return;
	} else if (strcmp(verb, "dump") == 0) {
		dump();
		return;
	}
	if (r < 0)
		printf("error: %s\n", strerror(-r));
	else
		printf("ok %llu\n", (unsigned long long)next_lsn);
}

/* One process at a time: the table is its own. */
static void open_folder(const char *path)
{
	int lock;

	folder = open(path, O_RDONLY | O_DIRECTORY);
	lock = folder < 0 ? -1 : openat(folder, "lock", O_RDWR | O_CREAT, 0600);
	if (lock < 0 || lockf(lock, F_TLOCK, 0) < 0)
		die(path, -errno);
}

int main(int argc, char **argv)
{
	static char line[16 + KEY_MAX + VALUE_MAX];
	int r;

	if (argc != 3) {
		fputs("usage: kv FOLDER LOG\n", stderr);
		return 64;
	}
	open_folder(argv[1]);
	r = pmemlogd_connect(&connection, NULL);
	if (r < 0)
		die("pmemlogd", r);
	r = pmemlogd_open(connection, argv[2], PMEMLOGD_CREATE, 0600, 0, &wal);
	if (r < 0)
		die(argv[2], r);
	load();
	replay();
	while (fgets(line, sizeof(line), stdin)) {
		if (!strchr(line, '\n')) {
			/* Too long, or its end is missing: not half a command. */
			for (r = getchar(); r != EOF && r != '\n'; r = getchar())
				;
			line[0] = '\0';
		}
		answer(line);
		(void)fflush(stdout);
	}
	(void)pmemlogd_close(wal);
	(void)pmemlogd_disconnect(connection);
	return 0;
}
