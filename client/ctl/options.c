/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

/* `--name VALUE` or `--name=VALUE` at argv[i]: words used, 0 (another option), -1 (no value; told). */
static int take_value(int argc, char **argv, int i, const char *name, const char **ret)
{
	size_t n = strlen(name);

	if (strncmp(argv[i], name, n) != 0)
		return 0;
	if (argv[i][n] == '=') {
		*ret = argv[i] + n + 1;
		return 1;
	}
	if (argv[i][n] != '\0')
		return 0;
	if (i + 1 >= argc) {
		ctl_fail(0, "%s needs a value; pmemlogctl --help", name);
		return -1;
	}
	*ret = argv[i + 1];
	return 2;
}

int ctl_common_option(struct ctl *c, int argc, char **argv, int i)
{
	int used = take_value(argc, argv, i, "--config", &c->config_path);

	if (used == 0)
		used = take_value(argc, argv, i, "--socket", &c->socket);
	if (used == 0 && argv[i][0] == '-' && argv[i][1] == 'c' && argv[i][2] != '\0') {
		c->config_path = argv[i] + 2;
		used = 1;
	}
	if (used == 0)
		used = take_value(argc, argv, i, "-c", &c->config_path);
	return used;
}

static int take_option(const struct verb *v, const struct ctl_option *options, int argc,
		       char **argv, int i)
{
	char name[64];

	for (const struct ctl_option *o = options; o->name; o++) {
		(void)snprintf(name, sizeof(name), "%s%s", o->name[1] ? "--" : "-", o->name);
		if (o->value) {
			int used = take_value(argc, argv, i, name, o->value);

			if (used != 0)
				return used;
		} else if (strcmp(argv[i], name) == 0) {
			*o->flag = true;
			return 1;
		}
	}
	ctl_fail(0, "%s: unknown option \"%s\"; pmemlogctl %s --help", v->name, argv[i], v->name);
	return -1;
}

static void print_help(const struct verb *v)
{
	printf("pmemlogctl [-c FILE] [--socket PATH] %s%s%s\n\n%s\n\n%s", v->name,
	       *v->arguments ? " " : "", v->arguments, v->summary, v->help);
}

int ctl_parse(struct ctl *c, const struct verb *v, int argc, char **argv,
	      const struct ctl_option *options, int min, int max, char ***ret_words, int *ret_n)
{
	bool only_words = false;
	int n = 0;

	for (int i = 0; i < argc;) {
		int used;

		if (only_words || argv[i][0] != '-' || argv[i][1] == '\0') {
			argv[n++] = argv[i++];
			continue;
		}
		if (strcmp(argv[i], "--") == 0) {
			only_words = true;
			i++;
			continue;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(v);
			return CTL_GOOD;
		}
		used = ctl_common_option(c, argc, argv, i);
		if (used == 0)
			used = take_option(v, options, argc, argv, i);
		if (used < 0)
			return CTL_USAGE;
		i += used;
	}
	if (n < min)
		return ctl_fail(CTL_USAGE, "%s: %s is missing; pmemlogctl %s --help", v->name,
				v->arguments, v->name);
	if (n > max)
		return ctl_fail(CTL_USAGE, "%s: unexpected argument \"%s\"; pmemlogctl %s --help",
				v->name, argv[max], v->name);
	*ret_words = argv;
	*ret_n = n;
	return -1;
}

const struct config *ctl_config(struct ctl *c)
{
	const char *path = c->config_path ? c->config_path : CONFIG_DEFAULT_PATH;
	char error[512] = "";
	int r;

	if (c->config)
		return c->config;
	/* Nothing installed: what is compiled in. A file that was asked for must be there. */
	if (!c->config_path && access(path, F_OK) < 0 && errno == ENOENT)
		path = NULL;
	r = config_load(&c->config, path, error, sizeof(error));
	if (r < 0) {
		ctl_fail(0, "%s", error[0] ? error : strerror(-r));
		return NULL;
	}
	return c->config;
}
