/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"
#include "daemon/recover/recovery.h"

int facts_files(struct recovery *r)
{
	const struct plan *plan = &r->plan;
	struct pool_file entry;
	uint32_t from = 0;
	int index;

	free(r->files);
	r->files = calloc(plan->n_files ? plan->n_files : 1, sizeof(*r->files));
	if (!r->files)
		return -ENOMEM;
	for (size_t i = 0; i < plan->n_files; i++) {
		r->files[i].plan = &plan->files[i];
		r->files[i].fd = -1;
	}
	/* Only entries of this lane: a record may name no other domain's file. */
	while ((index = catalog_file_next(r->pool, r->domain.lane, from, &entry)) >= 0) {
		int i = plan_find(plan, entry.id);

		from = (uint32_t)index + 1;
		if (i < 0)
			continue;
		r->files[i].known = true;
		r->files[i].index = (uint32_t)index;
		r->files[i].entry = entry;
	}
	return 0;
}

static void look(struct recovery *r, struct recovery_file *f)
{
	struct judge_facts *facts = &f->facts;
	cleanup_close int fd = -1;
	int found;

	if (recovery_is_log(&f->entry)) {
		recovery_log_look(r, f);
		return;
	}
	found = identity_open(&f->entry, O_RDONLY | O_NOATIME, &fd);
	if (found == -EPERM)
		found = identity_open(&f->entry, O_RDONLY, &fd);
	if (found == IDENTITY_OK) {
		found = identity_times(fd, &facts->btime_ns, &facts->ctime_ns, NULL, NULL);
		if (found == 0)
			facts->mark = mark_read(fd, r->pool, &f->entry);
		if (found == 0 && facts->mark < 0)
			found = facts->mark;
	} else if (found == IDENTITY_STALE) {
		facts->found = FOUND_STALE;
		return;
	} else if (found == IDENTITY_NOT_MOUNTED) {
		facts->found = FOUND_NOT_MOUNTED;
		return;
	}
	facts->found = found < 0 ? FOUND_ERROR : FOUND_OPEN;
	facts->error = found < 0 ? found : 0;
}

void facts_judge(struct recovery *r)
{
	bool apply = r->options->apply;
	bool applied =
		r->domain.verdict == VERDICT_REPLAY && (r->domain.flags & POOL_DOMAIN_APPLIED);
	uint64_t now_ns = now_realtime_ns();

	for (size_t i = 0; i < r->plan.n_files; i++) {
		struct recovery_file *f = &r->files[i];

		f->facts = (struct judge_facts){
			.live = f->plan->records > 0,
			.named = f->plan->named,
			.known = f->known,
			.unlinked = f->plan->unlinked ||
				    (f->known && (f->entry.flags & POOL_FILE_UNLINKED)),
			.catalog_btime_ns = f->entry.btime_ns,
			.catalog_ctime_ns = f->entry.ctime_ns,
			.newest_record_ns = r->plan.newest_ns,
			.beat_ns = r->plan.beat_ns,
			.rewrite_until_ns = f->entry.rewrite_until_ns,
			.now_ns = now_ns,
		};
		if (f->facts.live && f->known)
			look(r, f);
		f->row = judge_file(&f->facts);
		f->action = judge_action(f->row, apply, applied);
	}
}
