/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libconfig.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "daemon/config_file.h"
#include "daemon/log.h"
#include "daemon/quantity.h"

#define CONFIG_LIST_MAX 256 /* picked: entries of one list */

enum kind {
	PATH,
	BOOL,
	SIZE,
	TIME,
	LIST,
	LEVEL
};

struct key {
	const char *name;
	size_t offset; /* in struct config */
	enum kind kind;
	uint64_t min, max, step;
	const char *fallback;
	bool reload;
	const char *help;
};

static const struct key keys[] = {
#define KEY(name, field, kind, min, max, step, fallback, reload, help) \
	{ #name, offsetof(struct config, field), kind, min, max, step, fallback, reload, help },
#include "daemon/config_keys.def"
#undef KEY
};

/* An old list and the next; freed with the configuration. */
struct config_retired {
	char **list;
	struct config_retired *next;
};

/* Where something was read, for messages. */
struct place {
	const char *file;
	unsigned line; /* 0: a default, or the file as a whole */
	char *error;
	unsigned n;
};

static int refuse(const struct place *at, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int refuse(const struct place *at, const char *format, ...)
{
	va_list ap;
	int done;

	if (at->n == 0)
		return -EINVAL;
	done = snprintf(at->error, at->n, "%s:%u: ", at->file, at->line);
	if (done < 0 || (unsigned)done >= at->n)
		return -EINVAL;
	va_start(ap, format);
	(void)vsnprintf(at->error + done, at->n - (unsigned)done, format, ap);
	va_end(ap);
	return -EINVAL;
}

static void *field_of(struct config *c, const struct key *k)
{
	return (char *)c + k->offset;
}

static int parse_quantity(const struct key *k, const char *text, const struct place *at,
			  uint64_t *ret)
{
	const struct quantity_range range = { k->min, k->max, k->step };
	char why[160];

	if (quantity_parse(text, k->kind == SIZE ? quantity_bytes : quantity_times, &range, ret,
			   why, sizeof(why)) == 0)
		return 0;
	return refuse(at, "%s: \"%s\" %s", k->name, text, why);
}

static int parse_path(const struct key *k, const char *text, const struct place *at, char **ret)
{
	size_t n = strlen(text);
	char *copy;

	/* The default of `socket` is the only empty one: it depends on run_dir. */
	if (n == 0 && at->line == 0)
		return 0;
	if (text[0] != '/')
		return refuse(at, "%s: \"%s\" is no absolute path", k->name, text);
	if (n > k->max)
		return refuse(at, "%s: path of %zu bytes is longer than %" PRIu64, k->name, n,
			      k->max);
	if (strstr(text, "/../") || (n >= 3 && strcmp(text + n - 3, "/..") == 0))
		return refuse(at, "%s: \"%s\" has `..` in it", k->name, text);
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return refuse(at, "%s: a control character in the path", k->name);
	while (n > 1 && text[n - 1] == '/')
		n--;
	copy = strndup(text, n);
	if (!copy)
		return -ENOMEM;
	free(*ret);
	*ret = copy;
	return 0;
}

static char **list_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
	return NULL;
}

static bool list_equal(char **a, char **b)
{
	for (; *a && *b; a++, b++)
		if (strcmp(*a, *b) != 0)
			return false;
	return *a == *b;
}

static int parse_list(const struct key *k, const config_setting_t *s, const struct place *at,
		      char ***ret)
{
	int n = config_setting_length(s);
	char **list;

	if (n > CONFIG_LIST_MAX)
		return refuse(at, "%s: more than %d entries", k->name, CONFIG_LIST_MAX);
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		const char *text = config_setting_get_string_elem(s, i);

		if (!text || !*text) {
			list_free(list);
			return refuse(at, "%s: entry %d is no text in double quotes", k->name,
				      i + 1);
		}
		list[i] = strdup(text);
		if (!list[i]) {
			list_free(list);
			return -ENOMEM;
		}
	}
	list_free(*ret);
	*ret = list;
	return 0;
}

static int parse_level(const struct key *k, const char *text, const struct place *at, int *ret)
{
	int level = log_level_of(text);

	if (level < 0)
		return refuse(at, "%s: \"%s\" is none of error, warning, notice, info, debug",
			      k->name, text);
	*ret = level;
	return 0;
}

static int parse_string(struct config *c, const struct key *k, const char *text,
			const struct place *at)
{
	switch (k->kind) {
	case PATH:
		return parse_path(k, text, at, field_of(c, k));
	case SIZE:
	case TIME:
		return parse_quantity(k, text, at, field_of(c, k));
	case LEVEL:
		return parse_level(k, text, at, field_of(c, k));
	case BOOL:
	case LIST:
		break;
	}
	return -EINVAL;
}

static int set_defaults(struct config *c)
{
	const struct place at = { "default", 0, NULL, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const struct key *k = &keys[i];
		char ***list = field_of(c, k);
		int r = 0;

		if (k->kind == BOOL) {
			*(bool *)field_of(c, k) = strcmp(k->fallback, "true") == 0;
		} else if (k->kind == LIST) {
			*list = calloc(2, sizeof(**list));
			if (!*list)
				return -ENOMEM;
			if (*k->fallback && !((*list)[0] = strdup(k->fallback)))
				return -ENOMEM;
		} else {
			r = parse_string(c, k, k->fallback, &at);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static const struct key *key_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int take_setting(struct config *c, const config_setting_t *s, struct place *at)
{
	const char *name = config_setting_name(s);
	const struct key *k = name ? key_find(name) : NULL;
	int type = config_setting_type(s);

	at->line = config_setting_source_line(s);
	if (config_setting_source_file(s))
		return refuse(at, "@include is not taken: one file, so that one owner is checked");
	if (!k)
		return refuse(at, "%s: unknown key (pmemlogd.conf(5) lists them)",
			      name ? name : "?");
	switch (k->kind) {
	case BOOL:
		if (type != CONFIG_TYPE_BOOL)
			return refuse(at, "%s: wants true or false, without quotes", name);
		*(bool *)field_of(c, k) = config_setting_get_bool(s) != 0;
		return 0;
	case LIST:
		if (type != CONFIG_TYPE_ARRAY && type != CONFIG_TYPE_LIST)
			return refuse(at, "%s: wants a list, such as [ \"mysql\", \"1001\" ]",
				      name);
		return parse_list(k, s, at, field_of(c, k));
	case PATH:
	case SIZE:
	case TIME:
	case LEVEL:
		break;
	}
	if (type != CONFIG_TYPE_STRING)
		return refuse(at, "%s: wants text in double quotes%s", name,
			      k->kind == SIZE	? ", such as \"256MiB\""
			      : k->kind == TIME ? ", such as \"10s\""
						: "");
	return parse_string(c, k, config_setting_get_string(s), at);
}

/* Clients find control/ and bypass/ beside the socket, the daemon below run_dir: one folder. */
static int settle_socket(struct config *c, struct place *at)
{
	size_t n = strlen(c->run_dir);

	if (!c->socket)
		return asprintf(&c->socket, "%s/pmemlogd.sock", c->run_dir) < 0 ? -ENOMEM : 0;
	if (strncmp(c->socket, c->run_dir, n) != 0 || c->socket[n] != '/' ||
	    strchr(c->socket + n + 1, '/'))
		return refuse(at,
			      "socket: \"%s\" does not lie in run_dir, \"%s\"; clients look for "
			      "control/ and bypass/ beside the socket",
			      c->socket, c->run_dir);
	return 0;
}

static int take_all(struct config *c, const config_t *parsed, struct place *at)
{
	const config_setting_t *root = config_root_setting(parsed);
	unsigned socket_line = 0;
	int r;

	for (int i = 0; i < config_setting_length(root); i++) {
		const config_setting_t *s = config_setting_get_elem(root, (unsigned)i);

		r = take_setting(c, s, at);
		if (r < 0)
			return r;
		if (strcmp(config_setting_name(s), "socket") == 0)
			socket_line = at->line;
	}
	at->line = socket_line;
	return settle_socket(c, at);
}

int config_parse(struct config **ret, const char *name, const char *text, size_t size,
		 char *ret_error, unsigned n)
{
	struct place at = { name, 0, ret_error, n };
	cleanup_free char *copy = NULL;
	struct config *c;
	config_t parsed;
	int r;

	if (n)
		ret_error[0] = '\0';
	if (memchr(text, '\0', size))
		return refuse(&at, "a zero byte in the file: this is no text");
	copy = strndup(text, size);
	c = calloc(1, sizeof(*c));
	if (!copy || !c) {
		config_free(c);
		return -ENOMEM;
	}
	r = set_defaults(c);
	if (r < 0) {
		config_free(c);
		return r;
	}
	config_init(&parsed);
	if (config_read_string(&parsed, copy) != CONFIG_TRUE) {
		at.line = (unsigned)max_of(config_error_line(&parsed), 0);
		r = refuse(&at, "%s", config_error_text(&parsed));
	} else {
		r = take_all(c, &parsed, &at);
	}
	config_destroy(&parsed);
	if (r < 0)
		config_free(c);
	else
		*ret = c;
	return r;
}

int config_load(struct config **ret, const char *path, char *ret_error, unsigned n)
{
	cleanup_free char *text = NULL;
	size_t size;
	int r;

	if (!path)
		return config_parse(ret, "default", "", 0, ret_error, n);
	r = config_file_read(path, &text, &size, ret_error, n);
	if (r < 0)
		return r;
	return config_parse(ret, path, text, size, ret_error, n);
}

struct config *config_free(struct config *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		void *field = field_of(c, &keys[i]);

		if (keys[i].kind == PATH)
			free(*(char **)field);
		else if (keys[i].kind == LIST)
			list_free(*(char ***)field);
	}
	while (c->retired) {
		struct config_retired *next = c->retired->next;

		list_free(c->retired->list);
		free(c->retired);
		c->retired = next;
	}
	free(c);
	return NULL;
}

/* ---- reload -------------------------------------------------------------------------------------- */

/* Swaps a list; the old one stays alive, a worker may be reading it. Release: pairs with config_get. */
static bool apply_list(struct config *c, char ***mine, char ***fresh)
{
	struct config_retired *old = malloc(sizeof(*old));

	if (!old)
		return false;
	old->list = *mine;
	old->next = c->retired;
	c->retired = old;
	atomic_store_release(mine, *fresh);
	*fresh = NULL;
	return true;
}

/* True if the value differs; stores it if the key may be reloaded. */
static bool apply_key(struct config *c, struct config *fresh, const struct key *k,
		      bool *ret_applied)
{
	void *a = field_of(c, k), *b = field_of(fresh, k);
	bool differs = false;

	*ret_applied = k->reload;
	switch (k->kind) {
	case PATH:
		return strcmp(*(char **)a, *(char **)b) != 0;
	case BOOL:
		return *(bool *)a != *(bool *)b;
	case SIZE:
	case TIME:
		differs = *(uint64_t *)a != *(uint64_t *)b;
		if (differs && k->reload)
			atomic_store_release((uint64_t *)a, *(uint64_t *)b);
		break;
	case LEVEL:
		differs = *(int *)a != *(int *)b;
		if (differs && k->reload)
			atomic_store_release((int *)a, *(int *)b);
		break;
	case LIST:
		differs = !list_equal(*(char ***)a, *(char ***)b);
		if (differs && k->reload)
			*ret_applied = apply_list(c, a, b);
		break;
	}
	return differs;
}

void config_apply(struct config *c, struct config *fresh,
		  void (*each)(void *arg, const char *key, bool applied), void *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		bool applied;

		if (apply_key(c, fresh, &keys[i], &applied))
			each(arg, keys[i].name, applied);
	}
}

void config_print_keys(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		printf("  %-18s %s%s (%s)\n", keys[i].name, keys[i].help,
		       keys[i].reload ? "" : " [restart]",
		       *keys[i].fallback ? keys[i].fallback : "empty");
}
