/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/check_process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/blockers.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"
#include "client/ctl/rules.h"
#include "client/ctl/unit.h"
#include "daemon/log.h"

struct looking {
	const struct check_process *c;
	const struct process *p;
	struct json_object *files, *findings;
	bool session;
	unsigned ruled, accelerated, others;
	char other[256]; /* a file that no rule takes */
};

/* ---- why the library is not there ---------------------------------------------------------------- */

static void why_secure(struct looking *l)
{
	const struct process *p = l->p;
	size_t before = doc_count(l->findings);

	blockers_program(p->root, p->exe, l->findings);
	if (doc_count(l->findings) > before)
		return;
	if (strchr(p->label, ':'))
		advice_add(
			l->findings, ADVICE_FAULT, "selinux",
			"a policy module that allows noatsecure from the starting domain to it",
			"its SELinux domain changed at the start (%s): the loader left the library out",
			p->label);
	else
		advice_add(
			l->findings, ADVICE_FAULT, "at-secure",
			"start it without raised privileges: User= of its unit, not su or sudo from a "
			"set-ID program",
			"it was started with raised privileges (AT_SECURE): the loader left the "
			"library out");
}

static bool preload_exists(const struct process *p)
{
	char words[sizeof(p->preload)], *rest = NULL;

	(void)snprintf(words, sizeof(words), "%s", p->preload);
	for (char *w = strtok_r(words, ": ", &rest); w; w = strtok_r(NULL, ": ", &rest)) {
		char path[CTL_PATH_MAX];

		(void)snprintf(path, sizeof(path), "%s%s", p->root, w);
		/* a bare name is searched for by the loader, in folders that are not ours to know */
		if (preload_is_ours(w) && (*w != '/' || access(path, F_OK) == 0))
			return true;
	}
	return false;
}

/* It was asked for, and the loader could not. */
static void why_not_loaded(struct looking *l)
{
	const struct process *p = l->p;

	if (!preload_exists(p))
		advice_add(l->findings, ADVICE_FAULT, "wrong-path",
			   "put the library's path right, or install it there; then restart",
			   "LD_PRELOAD is %s, and no such file is there", p->preload);
	else if (*p->label && !strchr(p->label, ':'))
		advice_add(
			l->findings, ADVICE_FAULT, "apparmor",
			"add the lines of the example profile, which also let the library be mapped; "
			"journalctl -k --grep=DENIED",
			"its AppArmor profile (%s) does not let it map the library", p->label);
	else
		advice_add(l->findings, ADVICE_FAULT, "not-loaded",
			   "LD_DEBUG=libs shows what the loader says; is the library for this "
			   "architecture, and may the user read it?",
			   "LD_PRELOAD names the library, and it is not loaded");
}

/* Nobody asked for it, or whoever starts the database took it out again. */
static void why_not_asked(struct looking *l)
{
	cleanup_free struct process *parent = malloc(sizeof(*parent));
	bool known = parent && process_read(parent, l->p->root, l->p->parent) == 0;
	bool safe = known && strstr(parent->name, "safe");
	char remedy[256];

	if (known && parent->environment_read && preload_is_ours(parent->preload)) {
		advice_add(
			l->findings, ADVICE_FAULT, safe ? "mysqld_safe" : "environment-cleared",
			safe ? "let the unit start the server itself; or keep the library in the "
			       "system library folder and malloc-lib= out of [mysqld_safe]"
			     : "the starting program has a configuration of its own for its "
			       "environment: put LD_PRELOAD there",
			"%s (pid %d), which started it, has LD_PRELOAD and did not pass it on",
			parent->name, parent->pid);
		return;
	}
	(void)snprintf(remedy, sizeof(remedy), "pmemlogctl enable %s, then restart it",
		       *l->p->unit ? l->p->unit : "UNIT");
	advice_add(
		l->findings, ADVICE_FAULT, "not-asked", remedy,
		"it was started without LD_PRELOAD%s: its unit has no drop-in, or was not restarted "
		"since",
		safe ? " (by mysqld_safe)" : "");
}

static void why_missing(struct looking *l)
{
	const struct process *p = l->p;

	if (!p->maps_read)
		advice_add(
			l->findings, ADVICE_FAULT, "not-readable", "run this as root",
			"whether it has the library cannot be seen: it is uid %u's, or it has ended",
			p->uid);
	else if (p->secure == 1)
		why_secure(l);
	else if (!p->dynamic)
		advice_add(l->findings, ADVICE_FAULT, "static",
			   "use a build of it that is linked dynamically",
			   "%s is linked statically: nothing can be preloaded", p->exe);
	else if (p->environment_read && preload_is_ours(p->preload))
		why_not_loaded(l);
	else if (p->environment_read)
		why_not_asked(l);
	else
		advice_add(l->findings, ADVICE_FAULT, "not-readable", "run this as root",
			   "it does not have the library, and why cannot be seen");
}

/* ---- its files ----------------------------------------------------------------------------------- */

/* What the daemon says of a file: its entry in the status; NULL: it does not know it. */
static struct json_object *entry_of(const struct check_process *c, const char *path)
{
	struct json_object *domains = doc_member(c->status, "domains");
	char have[512];

	for (size_t i = 0; i < doc_count(domains); i++) {
		struct json_object *files =
			doc_member(json_object_array_get_idx(domains, i), "files");

		for (size_t k = 0; k < doc_count(files); k++) {
			struct json_object *f = json_object_array_get_idx(files, k);

			if (strcmp(doc_text(f, "path", have, sizeof(have)), path) == 0)
				return f;
		}
	}
	return NULL;
}

static bool listed(struct looking *l, const char *path)
{
	char have[512];

	for (size_t i = 0; i < doc_count(l->files); i++)
		if (strcmp(doc_text(json_object_array_get_idx(l->files, i), "path", have,
				    sizeof(have)),
			   path) == 0)
			return true;
	return false;
}

static void take_file(void *arg, const char *path, bool written)
{
	struct looking *l = arg;
	struct json_object *f, *entry;
	char printable[512], state[32] = "no session", reason[512] = "";

	if (!written || strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0)
		return;
	log_printable(printable, sizeof(printable), path);
	if (!rules_match(path)) {
		/* the last one: what comes first is what the program was started with */
		l->others++;
		(void)snprintf(l->other, sizeof(l->other), "%.255s", printable);
		return;
	}
	if (listed(l, printable))
		return;
	l->ruled++;
	entry = entry_of(l->c, printable);
	if (l->session && entry) {
		(void)doc_text(entry, "state", state, sizeof(state));
		(void)doc_text(entry, "reason", reason, sizeof(reason));
	} else if (l->session && !l->c->status) {
		strcpy(state, "unknown"); /* NOLINT: fits */
	} else if (l->session) {
		strcpy(state, "not listed"); /* NOLINT: fits */
	}
	l->accelerated += strcmp(state, "lane") == 0;
	f = json_object_new_object();
	doc_put_text(f, "path", printable);
	doc_put_text(f, "state", state);
	doc_put_text(f, "reason", reason);
	(void)json_object_array_add(l->files, f);
}

static void why_no_session(struct looking *l)
{
	char bypass[CTL_PATH_MAX];

	(void)snprintf(bypass, sizeof(bypass), "%s/bypass", l->c->run_dir);
	if (*l->p->label)
		advice_add(
			l->findings, ADVICE_FAULT,
			strchr(l->p->label, ':') ? "selinux" : "apparmor",
			"let it reach the socket, control/ and the pool: the example profile names "
			"them; journalctl -k --grep=DENIED",
			"it has the library and no session, and is confined (%s)", l->p->label);
	else if (process_has_of(l->p, bypass))
		advice_add(
			l->findings, ADVICE_FAULT, "started-without-daemon",
			"systemctl start pmemlogd, then restart the database where it does not come "
			"back by itself (a program of several processes)",
			"it opened its files while the daemon could not be reached: they are in bypass");
	else
		advice_add(l->findings, ADVICE_FAULT, "no-session",
			   "journalctl -t pmemlogd-preload -u pmemlogd says why: the socket, "
			   "allow_users and allow_groups, a seccomp filter",
			   "it has the library and no session");
}

static void judge_files(struct looking *l)
{
	if (l->ruled == 0)
		advice_add(l->findings, ADVICE_WARNING, "no-rule-matches",
			   "compare `path` of the rules in /etc/pmemlogd/preload.d with its files",
			   "no rule takes a file that it has open for writing%s%s",
			   l->others ? "; one of them: " : "", l->other);
	else if (!l->session)
		why_no_session(l);
	else if (l->accelerated < l->ruled)
		advice_add(l->findings, ADVICE_WARNING, "bypass", "pmemlogctl status says why",
			   "%u of %u files go without the lane", l->ruled - l->accelerated,
			   l->ruled);
	else
		advice_add(l->findings, ADVICE_OK, "accelerated", "", "%u files are in the lane",
			   l->accelerated);
}

static void look_at_files(struct looking *l)
{
	char control[CTL_PATH_MAX];

	(void)snprintf(control, sizeof(control), "%s/control", l->c->run_dir);
	l->session = process_has_of(l->p, control);
	if (l->p->library_old)
		advice_add(l->findings, ADVICE_WARNING, "old-version",
			   "restart it when it suits; until then it goes on as it did",
			   "its library was replaced by another version since it started");
	if (rules_load(l->p->root, *l->p->rules ? l->p->rules : NULL, l->p->program) == 0) {
		advice_add(
			l->findings, ADVICE_FAULT, "no-rule",
			"add it to `program` of a rule in /etc/pmemlogd/preload.d, then restart it",
			"no rule names the program %s: the library does nothing in it",
			l->p->program);
		return;
	}
	if (!process_files(l->p, take_file, l)) {
		advice_add(l->findings, ADVICE_FAULT, "not-readable", "run this as root",
			   "its open files cannot be seen");
		return;
	}
	judge_files(l);
}

struct json_object *check_process(const struct check_process *c, const struct process *p)
{
	struct json_object *o = json_object_new_object();
	struct looking l = {
		.c = c,
		.p = p,
		.files = json_object_new_array(),
		.findings = json_object_new_array(),
	};

	if (*p->library)
		look_at_files(&l);
	else
		why_missing(&l);
	doc_put_number(o, "pid", (uint64_t)p->pid);
	doc_put_text(o, "program", p->exe);
	doc_put_text(o, "unit", p->unit);
	doc_put_bool(o, "loaded", *p->library);
	doc_put_text(o, "library", p->library);
	doc_put_bool(o, "session", l.session);
	(void)json_object_object_add(o, "files", l.files);
	(void)json_object_object_add(o, "findings", l.findings);
	return o;
}
