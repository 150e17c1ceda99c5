/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/recover/outcome.h"

#include <json-c/json.h>
#include <string.h>
#include <unistd.h>

const char *outcome_fs;
struct world w;
const struct recover_options plain;
const struct recover_options apply = { .apply = true };
const struct recover_options dry = { .dry_run = true };

static unsigned descriptors;

int outcome_setup(void **state)
{
	(void)state;
	descriptors = world_descriptors();
	world_begin(&w, outcome_fs);
	world_pool(&w);
	world_file(&w, 0, "redo", 'a', 8192);
	return 0;
}

int outcome_teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < WORLD_FILES; i++) {
		if (w.files[i].path[0] && access(w.files[i].path, F_OK) == 0)
			world_set_immutable(w.files[i].path, false);
	}
	world_end(&w);
	/* A descriptor that is left keeps a file system from being unmounted. */
	return world_descriptors() == descriptors ? 0 : -1;
}

/* Everything that RECOVER_CLEAN promises. */
void assert_clean(void)
{
	struct pool_domain d = world_domain(&w);

	assert_int_equal(d.verdict, VERDICT_NONE);
	assert_int_equal(d.flags, 0);
	assert_string_equal(d.reason, "");
	assert_int_equal(world_entries(&w), 0);
	assert_true(world_lane_empty(&w));
}

/* Quarantined in that row, nothing changed but the attribute; a second run says the same. */
void assert_quarantined(const char *row)
{
	struct json_object *report;
	uint64_t id = w.files[0].entry.id;

	assert_int_equal(world_recover(&w, dry, &report), RECOVER_QUARANTINED);
	assert_string_equal(report_row(report, id), row);
	json_object_put(report);
	assert_int_equal(world_domain(&w).verdict, VERDICT_NONE);

	assert_int_equal(world_recover(&w, plain, &report), RECOVER_QUARANTINED);
	assert_string_equal(report_row(report, id), row);
	assert_string_equal(report_text(report, "outcome"), "quarantined");
	json_object_put(report);
	assert_int_equal(world_domain(&w).verdict, VERDICT_QUARANTINED);
	assert_true(strlen(world_domain(&w).reason) > 20);
	assert_false(world_lane_empty(&w));
	assert_int_equal(world_recover(&w, plain, NULL), RECOVER_QUARANTINED);
}
