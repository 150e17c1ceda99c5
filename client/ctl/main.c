/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pmemlogctl: finds the verb and runs it. */

#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/overflow.h"
#include "client/ctl/ctl.h"
#include "daemon/log.h"

static const struct verb *const verbs[] = {
	&verb_pool_create, &verb_pool_check, &verb_pool_verify, &verb_status,	&verb_flush,
	&verb_gate,	   &verb_recover,    &verb_dump,	&verb_report,	&verb_enable,
	&verb_disable,	   &verb_check,	     &verb_doctor,	&verb_log_list, &verb_log_create,
	&verb_log_append,  &verb_log_cat,    &verb_log_tail,	&verb_log_dump, &verb_log_trim,
	&verb_log_rm,	   &verb_log_verify,
};

static void print_help(FILE *out)
{
	(void)fprintf(out, "pmemlogctl " PMEMLOGD_VERSION
			   " - look after pmemlogd, its pool and its recovery\n"
			   "\n"
			   "  pmemlogctl [-c FILE] [--socket PATH] VERB ...\n"
			   "\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		(void)fprintf(out, "  %s %s\n      %s\n", verbs[i]->name, verbs[i]->arguments,
			      verbs[i]->summary);
	(void)fprintf(out,
		      "\n"
		      "  -c, --config FILE  configuration instead of " CONFIG_DEFAULT_PATH "\n"
		      "      --socket PATH  the daemon's socket instead of the configuration's\n"
		      "      --version      print the version, and end\n"
		      "      --help         print this, and end; after a verb: more about it\n"
		      "\n"
		      "DOMAIN is NAME, or USER/NAME where several users have one of that name.\n"
		      "Exit: 0 good, 1 degraded or refused, 3 the daemon cannot be reached,\n"
		      "64 wrong command line, 78 configuration not good.\n");
}

/* How many words of argv name that verb: 0 if they do not. */
static int match(const struct verb *v, int argc, char **argv)
{
	const char *space = strchr(v->name, ' ');
	size_t n = space ? (size_t)(space - v->name) : strlen(v->name);

	if (argc < 1 || strlen(argv[0]) != n || strncmp(argv[0], v->name, n) != 0)
		return 0;
	if (!space)
		return 1;
	return argc > 1 && strcmp(argv[1], space + 1) == 0 ? 2 : 0;
}

static int run_verb(struct ctl *c, int argc, char **argv)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		int words = match(verbs[i], argc, argv);

		if (words)
			return verbs[i]->run(c, verbs[i], argc - words, argv + words);
	}
	if (strcmp(argv[0], "pool") == 0)
		return ctl_fail(CTL_USAGE, "pool: create, check or verify? pmemlogctl --help");
	if (strcmp(argv[0], "log") == 0)
		return ctl_fail(CTL_USAGE,
				"log: list, create, append, cat, tail, dump, trim, rm or "
				"verify? pmemlogctl --help");
	return ctl_fail(CTL_USAGE, "unknown verb \"%s\"; pmemlogctl --help lists them", argv[0]);
}

int main(int argc, char **argv)
{
	struct ctl c = { 0 };
	int code, i = 1;

	(void)setlocale(LC_ALL, "C");
	log_init(LOG_WARNING);
	while (i < argc && argv[i][0] == '-') {
		int used;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(stdout);
			return CTL_GOOD;
		}
		if (strcmp(argv[i], "--version") == 0) {
			printf("pmemlogctl " PMEMLOGD_VERSION "\n");
			return CTL_GOOD;
		}
		used = ctl_common_option(&c, argc, argv, i);
		if (used == 0)
			ctl_fail(0, "unknown option \"%s\"; pmemlogctl --help", argv[i]);
		if (used <= 0)
			return CTL_USAGE;
		i += used;
	}
	if (i >= argc) {
		print_help(stderr);
		return CTL_USAGE;
	}
	code = run_verb(&c, argc - i, argv + i);
	config_free(c.config);
	/* output that was lost (a full disk) must not look like a good answer */
	if (fflush(stdout) != 0 || ferror(stdout))
		return ctl_fail(CTL_REFUSED, "the output could not be written");
	return code;
}
