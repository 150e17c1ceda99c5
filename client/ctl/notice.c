/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"
#include "client/ctl/process.h"
#include "client/ctl/rules.h"
#include "daemon/log.h"

#define USUAL_SOCKET "/run/pmemlogd/pmemlogd.sock"
#define KNOWN	     256

struct notice {
	const char *socket;
	char control[128];
	struct json_object *unattended, *old;
	const struct process *process;
	/* Programs that no rule of the usual folder names: most of a machine, asked once each. */
	char none[KNOWN][64];
	unsigned none_n;
};

static bool ruled(struct notice *n, const struct process *p)
{
	for (unsigned i = 0; !*p->rules && i < n->none_n; i++)
		if (strcmp(n->none[i], p->program) == 0)
			return false;
	if (rules_load("", *p->rules ? p->rules : NULL, p->program) > 0)
		return true;
	if (!*p->rules && n->none_n < KNOWN)
		(void)snprintf(n->none[n->none_n++], sizeof(n->none[0]), "%s", p->program);
	return false;
}

static struct json_object *process_json(const struct process *p)
{
	struct json_object *o = json_object_new_object();
	char program[64];

	log_printable(program, sizeof(program), p->program);
	doc_put_number(o, "pid", (uint64_t)p->pid);
	doc_put_text(o, "program", program);
	return o;
}

static void take_file(void *arg, const char *path, bool written)
{
	struct notice *n = arg;
	struct json_object *o;
	char printable[512];

	if (!written || !rules_match(path))
		return;
	o = process_json(n->process);
	log_printable(printable, sizeof(printable), path);
	doc_put_text(o, "path", printable);
	doc_put_text(o, "reason",
		     *n->process->library ? "has the library and no session"
					  : "runs without the library");
	(void)json_object_array_add(n->unattended, o);
}

static void look_at(void *arg, int pid)
{
	cleanup_free struct process *p = malloc(sizeof(*p));
	struct notice *n = arg;

	/* Another daemon's is none of ours. */
	if (!p || !process_peek(p, "", pid) ||
	    strcmp(*p->socket ? p->socket : USUAL_SOCKET, n->socket) != 0 || !ruled(n, p))
		return;
	if (process_read(p, "", pid) < 0)
		return;
	n->process = p;
	if (!process_has_of(p, n->control))
		(void)process_files(p, take_file, n);
	else if (p->library_old)
		(void)json_object_array_add(n->old, process_json(p));
}

/* No commit lies outside the files, and no file bears a mark: those go with the last session's clean end. */
static bool safe_to_move(struct json_object *domain)
{
	char state[32];

	return strcmp(doc_text(domain, "state", state, sizeof(state)), "ok") == 0 &&
	       doc_number(domain, "live_bytes") == 0 && doc_number(domain, "sessions") == 0 &&
	       doc_count(doc_member(domain, "files")) == 0;
}

void notice_add(struct json_object *document, const char *socket)
{
	struct json_object *domains = doc_member(document, "domains");
	cleanup_free struct notice *n = calloc(1, sizeof(*n));
	const char *slash;
	bool safe = true;

	if (!n)
		return;
	n->socket = socket;
	slash = strrchr(socket, '/');
	(void)snprintf(n->control, sizeof(n->control), "%.*s/control",
		       slash ? (int)(slash - socket) : 0, socket);
	n->unattended = json_object_new_array();
	n->old = json_object_new_array();
	process_each("", look_at, n);
	for (size_t i = 0; i < doc_count(domains); i++) {
		struct json_object *d = json_object_array_get_idx(domains, i);

		doc_put_bool(d, "safe_to_move", safe_to_move(d));
		safe = safe && safe_to_move(d);
	}
	doc_put_bool(document, "safe_to_move", safe);
	doc_put_bool(document, "all_processes", geteuid() == 0);
	if (doc_count(n->unattended) > 0)
		doc_put_number(document, "exit", CTL_REFUSED);
	(void)json_object_object_add(document, "unattended", n->unattended);
	(void)json_object_object_add(document, "old_library", n->old);
}
