/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/command.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"
#include "client/ctl/enable.h"
#include "pool/dir/files.h"

void changes_add(struct changes *c, const char *path, char *text)
{
	struct change *one = &c->list[c->n++];

	(void)snprintf(one->path, sizeof(one->path), "%s", path);
	one->text = text;
}

void changes_free(struct changes *c)
{
	for (unsigned i = 0; i < c->n; i++)
		free(c->list[i].text);
	c->n = 0;
}

/* ROOT and PATH as folder and name; the folder is made if only it is missing. */
static int split(const char *root, const char *path, char dir[CTL_PATH_MAX], const char **ret_name)
{
	char *slash;

	(void)snprintf(dir, CTL_PATH_MAX, "%s%s", root, path);
	slash = strrchr(dir, '/');
	*slash = '\0';
	*ret_name = strrchr(path, '/') + 1;
	return directory_make(dir, 0755);
}

static int take_away(const char *dir, const char *name)
{
	char whole[CTL_PATH_MAX];

	(void)snprintf(whole, sizeof(whole), "%.500s/%.500s", dir, name);
	if (unlink(whole) < 0 && errno != ENOENT)
		return -errno;
	/* an empty folder of drop-ins is nobody's; what else lies in it keeps it */
	if (rmdir(dir) < 0)
		return directory_sync(dir);
	return 0;
}

static int apply_one(const struct change *c, const char *root)
{
	char dir[CTL_PATH_MAX];
	const char *name;
	int r = split(root, c->path, dir, &name);

	if (r == 0)
		r = c->text ? file_replace(dir, name, c->text, 0644) : take_away(dir, name);
	if (r < 0)
		return ctl_fail(CTL_REFUSED, "%s%s: %s", root, c->path, strerror(-r));
	return 0;
}

int changes_apply(const struct changes *c, const char *root)
{
	for (unsigned i = 0; i < c->n; i++) {
		int code = apply_one(&c->list[i], root);

		if (code != 0)
			return code;
	}
	return 0;
}

int changes_reload(const char *root)
{
	static const char *const reload[] = { "systemctl", "daemon-reload", NULL };
	cleanup_free char *text = NULL;

	if (*root || access("/run/systemd/system", F_OK) < 0)
		return 0;
	if (command_run(reload, 4096, 60000, &text) == 0)
		return 0;
	return ctl_fail(CTL_REFUSED, "the files are changed, and systemd did not read them: "
				     "systemctl daemon-reload");
}

static void print_json(const struct changes *c, const struct unit *u, struct json_object *notes,
		       bool dry)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	doc_put_text(o, "unit", u->name);
	doc_put_text(o, "server", u->server);
	doc_put_text(o, "user", u->user);
	doc_put_text(o, "domain", u->domain);
	doc_put_bool(o, "done", !dry);
	for (unsigned i = 0; i < c->n; i++) {
		struct json_object *one = json_object_new_object();

		doc_put_text(one, "path", c->list[i].path);
		doc_put_text(one, "action", c->list[i].text ? "write" : "remove");
		doc_put_text(one, "text", c->list[i].text ? c->list[i].text : "");
		(void)json_object_array_add(list, one);
	}
	(void)json_object_object_add(o, "changes", list);
	(void)json_object_object_add(o, "findings", json_object_get(notes));
	doc_print(o);
	json_object_put(o);
}

void changes_print(const struct changes *c, const struct unit *u, struct json_object *notes,
		   bool dry, bool json)
{
	if (json) {
		print_json(c, u, notes, dry);
		return;
	}
	for (unsigned i = 0; i < c->n; i++) {
		const struct change *one = &c->list[i];

		printf("%s %s%s%s\n", dry ? "Would" : "Did", one->text ? "write " : "remove ",
		       u->root, one->path);
		if (one->text && dry)
			printf("%s\n", one->text);
	}
	advice_print(notes, false);
}

/* Copies the lines of the file that are not ours. */
static void copy_others(FILE *out, const char *text)
{
	while (text && *text) {
		size_t n = strcspn(text, "\n");
		const char *p = text + strspn(text, " \t");
		bool ours = (strncmp(p, "LD_PRELOAD", 10) == 0 && strchr(" \t=", p[10])) ||
			    (strncmp(p, "PMEMLOGD_DOMAIN", 15) == 0 && strchr(" \t=", p[15]));

		if (!ours)
			(void)fprintf(out, "%.*s\n", (int)n, text);
		text += n;
		text += *text == '\n';
	}
}

static char *environment(const struct unit *u, const char *domain)
{
	cleanup_free char *old = root_read(u->root, u->environment);
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	copy_others(out, old);
	if (domain)
		(void)fprintf(out, "LD_PRELOAD = '%s%s%s'\nPMEMLOGD_DOMAIN = '%s'\n",
			      CTL_PRELOAD_PATH, *u->preload ? " " : "", u->preload, domain);
	else if (*u->preload)
		(void)fprintf(out, "LD_PRELOAD = '%s'\n", u->preload);
	(void)fclose(out);
	return text;
}

char *environment_with(const struct unit *u, const char *domain)
{
	return environment(u, domain);
}

char *environment_without(const struct unit *u)
{
	return environment(u, NULL);
}
