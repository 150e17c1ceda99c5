/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/command.h"
#include "client/ctl/ctl.h"
#include "client/ctl/enable.h"

struct strays {
	const struct unit *unit;
	struct json_object *list;
};

/* Whatever else names the library: a later start would load it, without a gate. */
static void look_for_stray(void *arg, const char *path, const char *text)
{
	struct strays *s = arg;

	if (strcmp(path, s->unit->dropin) == 0 || strcmp(path, s->unit->environment) == 0)
		return;
	for (const char *line = text; line && *line;
	     line = strchr(line, '\n'), line += line != NULL) {
		const char *p = line + strspn(line, " \t\n"),
			   *found = strstr(p, "libpmemlogd-preload");

		if (!found || found > p + strcspn(p, "\n") || *p == '#' || *p == ';')
			continue;
		advice_add(
			s->list, ADVICE_FAULT, "stray-preload",
			"take the library out of that file by hand, then: systemctl daemon-reload",
			"%s still names the library", path);
		return;
	}
}

static int ask_gate(struct ctl *c, const char *domain)
{
	char name[256], *words[] = { name, NULL };

	(void)snprintf(name, sizeof(name), "%s", domain);
	return verb_gate.run(c, &verb_gate, 1, words);
}

/* No commit of it lies outside its files, and it does not run. 0, or an exit code (told). */
static int is_clean(struct ctl *c, const struct unit *u)
{
	const char *const active[] = { "systemctl", "is-active", "--quiet", u->name, NULL };
	cleanup_free char *text = NULL;
	char unit[UNIT_NAME_MAX];
	int code = 0;

	if (command_run(active, 64, 20000, &text) == 0)
		return ctl_fail(CTL_REFUSED, "%s is running: systemctl stop %s first", u->name,
				u->name);
	if (*u->gated)
		code = ask_gate(c, u->gated);
	/* a gate that asks for another name says nothing about this one */
	if (code == 0 && *u->domain)
		code = ask_gate(c, u->domain);
	/* the library names the domain by the unit where nobody does */
	(void)snprintf(unit, sizeof(unit), "%.*s", (int)(strlen(u->name) - strlen(".service")),
		       u->name);
	if (code == 0 && u->loads && !*u->domain)
		code = ask_gate(c, unit);
	return code;
}

static bool there(const struct unit *u, const char *path)
{
	char whole[CTL_PATH_MAX];

	(void)snprintf(whole, sizeof(whole), "%s%s", u->root, path);
	return access(whole, F_OK) == 0;
}

static void plan(const struct unit *u, struct changes *c)
{
	char *text = *u->environment && (u->loads || *u->domain) && there(u, u->environment)
			     ? environment_without(u)
			     : NULL;

	/* The library before the gate: a cut between leaves a database that is only kept down when it must. */
	if (text)
		changes_add(c, u->environment, text);
	if (there(u, u->dropin))
		changes_add(c, u->dropin, NULL);
}

static int disable(struct ctl *ctl, const struct unit *u, bool dry, bool json)
{
	struct json_object *notes = json_object_new_array();
	struct strays strays = { u, notes };
	struct changes c = { .n = 0 };
	int code = 0;

	plan(u, &c);
	unit_each_source(u, look_for_stray, &strays);
	if (!dry && !*u->root)
		code = is_clean(ctl, u);
	if (code == 0 && !dry)
		code = changes_apply(&c, u->root);
	if (code == 0) {
		changes_print(&c, u, notes, dry, json);
		if (!json && c.n == 0)
			printf("%s is not enabled: nothing to do\n", u->name);
		if (!dry && c.n > 0)
			code = changes_reload(u->root);
	}
	if (code == 0 && advice_worst(notes) == ADVICE_FAULT)
		code = CTL_REFUSED;
	changes_free(&c);
	json_object_put(notes);
	return code;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool dry = false, json = false;
	const char *root = "";
	const struct ctl_option options[] = {
		{ .name = "dry-run", .flag = &dry },
		{ .name = "json", .flag = &json },
		{ .name = "root", .value = &root },
		{ 0 },
	};
	struct unit *u = calloc(1, sizeof(*u));
	char **words;
	int code, n;

	if (!u)
		return ctl_fail(CTL_REFUSED, "no memory");
	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code < 0) {
		code = unit_load(u, root, words[0]);
		if (code == 0)
			code = disable(c, u, dry, json);
	}
	free(u);
	return code;
}

const struct verb verb_disable = {
	.name = "disable",
	.arguments = "[--dry-run] [--json] [--root=DIR] UNIT",
	.summary = "take the library out of a database's unit",
	.help = "  --dry-run   say what would be changed, and change nothing\n"
		"  --json      for programs\n"
		"  --root=DIR  the files below DIR instead of this machine's; nothing is asked or reloaded\n"
		"\n"
		"The database has to be stopped, and its gate has to say that no commit lies outside its\n"
		"files; otherwise nothing is changed. Exit 1 also where another file still names the library:\n"
		"it is told which.\n",
	.run = run,
};
