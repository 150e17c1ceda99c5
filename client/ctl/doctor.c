/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The verb doctor: the machine against what is promised. */
#include "client/ctl/doctor.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"

static void look(const struct doctor_check *check, const struct facts *f, struct json_object *list)
{
	for (; check->id; check++)
		check->look(f, check->id, list);
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	const char *root = "";
	bool json = false;
	const struct ctl_option options[] = { { .name = "json", .flag = &json },
					      { .name = "root", .value = &root },
					      { 0 } };
	cleanup_free struct facts *f = malloc(sizeof(*f));
	const struct config *config;
	struct json_object *list;
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 0, 0, &words, &n);
	if (code >= 0)
		return code;
	config = ctl_config(c);
	if (!config)
		return CTL_CONFIG;
	if (!f)
		return ctl_fail(CTL_REFUSED, "no memory");
	list = json_object_new_array();
	facts_gather(f, root, config);
	look(doctor_memory, f, list);
	look(doctor_system, f, list);
	code = advice_worst(list) < ADVICE_WARNING ? CTL_GOOD : CTL_REFUSED;
	if (json) {
		struct json_object *o = json_object_new_object();

		doc_put_number(o, "exit", (uint64_t)code);
		(void)json_object_object_add(o, "findings", json_object_get(list));
		doc_print(o);
		json_object_put(o);
	} else {
		advice_print(list, true);
	}
	json_object_put(list);
	return code;
}

const struct verb verb_doctor = {
	.name = "doctor",
	.arguments = "[--json] [--root=DIR]",
	.summary = "is this machine fit for it? each finding with its remedy",
	.help = "  --json      for programs\n"
		"  --root=DIR  /proc, /sys and /run below DIR instead of this machine's\n"
		"\n"
		"The pool's namespace, DAX and MAP_SYNC as they are in force, persistence domain, unsafe\n"
		"shutdowns, bad blocks, alignment, NUMA, mounts of pool and databases, limits, kernel,\n"
		"clock. Changes nothing. As root, and while daemon and databases run, it sees most.\n"
		"Exit 1 for a warning or a fault.\n",
	.run = run,
};
