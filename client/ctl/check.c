/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The verb check: a process, or the processes of a unit and the unit's files. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/blockers.h"
#include "client/ctl/check_process.h"
#include "client/ctl/command.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"

struct checking {
	struct check_process how;
	const char *root;
	const char *unit; /* full name; NULL: a process */
	const char *server;
	struct json_object *processes, *findings;
};

static void add_process(struct checking *k, const struct process *p)
{
	(void)json_object_array_add(k->processes, check_process(&k->how, p));
}

static int check_pid(struct checking *k, int pid)
{
	struct process *p = malloc(sizeof(*p));
	int r = p ? process_read(p, k->root, pid) : -ENOMEM;

	if (r == 0)
		add_process(k, p);
	free(p);
	return r == 0 ? 0 : ctl_fail(CTL_REFUSED, "process %d: %s", pid, strerror(-r));
}

/* Of the unit's processes the servers: a shell or mysqld_safe that starts one is not meant. */
static void add_of_unit(void *arg, int pid)
{
	struct checking *k = arg;
	struct process *p = malloc(sizeof(*p));

	if (p && process_read(p, k->root, pid) == 0 && strcmp(p->unit, k->unit) == 0 &&
	    strcmp(p->program, k->server) == 0)
		add_process(k, p);
	free(p);
}

static void check_gate(struct checking *k, const struct unit *u)
{
	char remedy[512];

	(void)snprintf(remedy, sizeof(remedy), "pmemlogctl enable %s", u->name);
	if (!u->loads && !*u->gated)
		advice_add(k->findings, ADVICE_FAULT, "not-enabled", remedy,
			   "%s neither loads the library nor asks its gate", u->name);
	else if (!u->loads)
		advice_add(k->findings, ADVICE_FAULT, "not-loading", remedy,
			   "%s does not load the library", u->name);
	else if (!*u->gated)
		advice_add(
			k->findings, ADVICE_FAULT, "no-gate", remedy,
			"%s loads the library without a gate: after a crash it would start without "
			"commits that lie in the pool",
			u->name);
	if (*u->gated && *u->domain) {
		const char *slash = strchr(u->gated, '/');

		if (strcmp(slash ? slash + 1 : u->gated, u->domain) != 0)
			advice_add(k->findings, ADVICE_FAULT, "other-gate", remedy,
				   "the gate asks for %s, and the database's domain is %s",
				   u->gated, u->domain);
	}
}

static int check_unit(struct checking *k, const char *word)
{
	struct unit *u = calloc(1, sizeof(*u));
	int code = u ? unit_load(u, k->root, word) : CTL_REFUSED;

	if (code == 0) {
		check_gate(k, u);
		blockers_find(u, k->findings);
		k->unit = u->name;
		k->server = u->server;
		process_each(k->root, add_of_unit, k);
		if (doc_count(k->processes) == 0)
			advice_add(k->findings, ADVICE_NOTE, "not-running", "",
				   "no process of %s runs: what would be is judged by its files",
				   u->name);
	}
	free(u);
	return code;
}

static void print_process(struct json_object *o)
{
	struct json_object *files = doc_member(o, "files");
	char text[512], reason[512], state[32];

	printf("%" PRIu64 " %s: library %s, %s\n", doc_number(o, "pid"),
	       doc_text(o, "program", text, sizeof(text)),
	       doc_true(o, "loaded") ? "loaded" : "NOT LOADED",
	       doc_true(o, "session") ? "session" : "no session");
	for (size_t i = 0; i < doc_count(files); i++) {
		struct json_object *f = json_object_array_get_idx(files, i);

		(void)doc_text(f, "reason", reason, sizeof(reason));
		printf("  %-10s %s%s%s%s\n", doc_text(f, "state", state, sizeof(state)),
		       doc_text(f, "path", text, sizeof(text)), *reason ? "  (" : "", reason,
		       *reason ? ")" : "");
	}
	advice_print(doc_member(o, "findings"), true);
}

static enum advice worst(struct checking *k)
{
	enum advice w = advice_worst(k->findings);
	bool lane = false;

	/* Of many processes one that works is enough, if none of the others has a fault: those that have no log open
	 * are of no interest. */
	for (size_t i = 0; i < doc_count(k->processes); i++) {
		struct json_object *p = json_object_array_get_idx(k->processes, i);
		enum advice a = advice_worst(doc_member(p, "findings"));

		lane |= a == ADVICE_OK;
		if (a == ADVICE_FAULT || (a == ADVICE_WARNING && doc_count(doc_member(p, "files"))))
			w = a > w ? a : w;
	}
	if (doc_count(k->processes) > 0 && !lane && w < ADVICE_WARNING)
		w = ADVICE_WARNING;
	return w;
}

static int show(struct checking *k, bool json)
{
	enum advice w = worst(k);

	if (json) {
		struct json_object *o = json_object_new_object();

		(void)json_object_object_add(o, "processes", json_object_get(k->processes));
		(void)json_object_object_add(o, "findings", json_object_get(k->findings));
		doc_print(o);
		json_object_put(o);
	} else {
		for (size_t i = 0; i < doc_count(k->processes); i++)
			print_process(json_object_array_get_idx(k->processes, i));
		advice_print(k->findings, true);
		if (w < ADVICE_WARNING)
			printf("Good.\n");
	}
	return w < ADVICE_WARNING ? CTL_GOOD : CTL_REFUSED;
}

static struct json_object *ask_status(struct ctl *c)
{
	const char *socket = ctl_socket(c);
	struct json_object *o;
	struct answer a;

	if (!socket || ctl_ask_domain(socket, WIRE_STATUS, "", CTL_PATIENCE_MS, NULL, &a) < 0)
		return NULL;
	o = a.document ? json_tokener_parse(a.document) : NULL;
	free(a.document);
	return o;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	struct checking k = { .root = "" };
	bool json = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &json },
					      { .name = "root", .value = &k.root },
					      { 0 } };
	const struct config *config;
	char **words, *end;
	int code, n;
	long pid;

	code = ctl_parse(c, v, argc, argv, options, 1, 1, &words, &n);
	if (code >= 0)
		return code;
	config = ctl_config(c);
	if (!config)
		return CTL_CONFIG;
	k.how.run_dir = config->run_dir;
	k.how.status = *k.root ? NULL : ask_status(c);
	k.processes = json_object_new_array();
	k.findings = json_object_new_array();
	errno = 0;
	pid = strtol(words[0], &end, 10);
	if (*end || end == words[0])
		code = check_unit(&k, words[0]);
	else if (errno || pid <= 0 || pid > INT_MAX)
		code = ctl_fail(CTL_USAGE, "check: %s is no process", words[0]);
	else
		code = check_pid(&k, (int)pid);
	if (code == 0)
		code = show(&k, json);
	json_object_put(k.processes);
	json_object_put(k.findings);
	json_object_put(k.how.status);
	return code;
}

const struct verb verb_check = {
	.name = "check",
	.arguments = "[--json] [--root=DIR] UNIT|PID",
	.summary = "does this database use pmemlogd, and if not, why?",
	.help = "  --json      for programs\n"
		"  --root=DIR  the files and /proc below DIR instead of this machine's\n"
		"\n"
		"For a process: is the library loaded, which files are in the lane, and otherwise the cause:\n"
		"raised privileges, file capabilities, set-ID, mysqld_safe, AppArmor, SELinux, a wrong path,\n"
		"no rule, an old version. For a unit: its processes, and its files. As root it sees all.\n"
		"Exit 1 when something keeps it from the lane.\n",
	.run = run,
};
