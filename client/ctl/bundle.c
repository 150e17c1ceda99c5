/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The verb report: everything that whoever helps will ask for, in one document that can be read before it is
 * sent. No payload of a record, no environment of a process, no word of a database's own configuration.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/ctl/bundle.h"
#include "client/ctl/command.h"
#include "client/ctl/ctl.h"
#include "client/ctl/document.h"

#define COMMAND_MAX	(8u << 20) /* bytes of one command's output */
#define COMMAND_TIME_MS 20000

void bundle_put(struct bundle *b, const char *name, const char *text)
{
	(void)json_object_object_add(b->sections, name, json_object_new_string(text));
}

void bundle_command(struct bundle *b, const char *name, const char *const *argv)
{
	cleanup_free char *text = NULL;
	char why[128];
	int r = command_run(argv, COMMAND_MAX, COMMAND_TIME_MS, &text);

	/* An exit status that is not 0 is an answer, too (systemctl status of a stopped unit). */
	if (r < 0 && !(text && *text)) {
		(void)snprintf(why, sizeof(why), "%s: %s\n", argv[0], strerror(-r));
		bundle_put(b, name, why);
		return;
	}
	bundle_put(b, name, text);
}

static void put_host(struct bundle *b)
{
	struct utsname u;
	char text[1024], day[64] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (uname(&u) < 0)
		memset(&u, 0, sizeof(u));
	if (gmtime_r(&now, &tm))
		(void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%SZ", &tm);
	(void)snprintf(text, sizeof(text),
		       "pmemlogctl " PMEMLOGD_VERSION "\nmade: %s\nas uid: %u\nkernel: %s %s %s\n",
		       day, (unsigned)geteuid(), u.release, u.version, u.machine);
	bundle_put(b, "host", text);
}

static void put_status(struct bundle *b, const char *socket)
{
	struct answer a;
	char text[256];
	int r;

	r = ctl_ask_domain(socket, WIRE_STATUS, "", CTL_PATIENCE_MS, NULL, &a);
	if (r < 0) {
		(void)snprintf(text, sizeof(text), "the daemon cannot be reached at %s: %s\n",
			       socket, strerror(-r));
		bundle_put(b, "status", text);
		return;
	}
	if (a.document)
		(void)json_object_object_add(b->sections, "status", json_tokener_parse(a.document));
	else
		bundle_put(b, "status", a.reply.text);
	free(a.document);
}

static void put_commands(struct bundle *b)
{
	static const char *const units[] = { "systemctl", "show", "pmemlogd.service",
					     "pmemlogd.socket", NULL };
	static const char *const databases[] = { "systemctl", "--no-pager", "list-units",  "--all",
						 "mysql*",    "mariadb*",   "postgresql*", NULL };
	static const char *const journal[] = { "journalctl",
					       "--no-pager",
					       "--unit=pmemlogd.service",
					       "--unit=pmemlogd.socket",
					       "--lines=5000",
					       "--output=short-iso-precise",
					       NULL };
	/* The preload library tells the journal by this name, from inside the database. */
	static const char *const library[] = { "journalctl",
					       "--no-pager",
					       "--identifier=pmemlogd-preload",
					       "--lines=2000",
					       "--output=short-iso-precise",
					       NULL };
	static const char *const kernel[] = {
		"journalctl",
		"--no-pager",
		"--dmesg",
		"--lines=2000",
		"--grep=pmem|nvdimm|nfit|dax|memory failure|I/O error",
		"--output=short-iso-precise",
		NULL
	};

	bundle_command(b, "units", units);
	bundle_command(b, "databases", databases);
	bundle_command(b, "journal", journal);
	bundle_command(b, "journal of the library", library);
	bundle_command(b, "journal of the kernel", kernel);
}

static void print_section(FILE *out, const char *name, struct json_object *o)
{
	const char *text =
		json_object_is_type(o, json_type_string)
			? json_object_get_string(o)
			: json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
								    JSON_C_TO_STRING_NOSLASHESCAPE);
	size_t n = strlen(text);

	(void)fprintf(out, "==== %s ====\n%s%s\n", name, text,
		      n == 0 || text[n - 1] != '\n' ? "\n" : "");
}

/* False: it could not be written whole. */
static bool write_out(FILE *out, struct bundle *b, bool json)
{
	if (json)
		(void)fprintf(out, "%s\n",
			      json_object_to_json_string_ext(
				      b->sections,
				      JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
	else {
		json_object_object_foreach(b->sections, name, section) {
			print_section(out, name, section);
		}
	}
	return fflush(out) == 0 && !ferror(out);
}

/* Never over a file that is there, and for nobody else to read: journals and paths are in it. */
static int write_file(struct bundle *b, const char *path, bool json)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	bool good;

	if (!out)
		return ctl_fail(CTL_REFUSED, "%s: cannot be made: %s", path, strerror(errno));
	good = write_out(out, b, json);
	if (fclose(out) != 0 || !good) {
		(void)unlink(path);
		return ctl_fail(CTL_REFUSED, "%s: could not be written", path);
	}
	printf("The report is in %s. Read it before you send it: it names hosts, users and paths.\n",
	       path);
	return CTL_GOOD;
}

static int run(struct ctl *c, const struct verb *v, int argc, char **argv)
{
	bool json = false;
	const char *output = NULL;
	const struct ctl_option options[] = { { .name = "json", .flag = &json },
					      { .name = "output", .value = &output },
					      { 0 } };
	struct bundle b = { .sections = json_object_new_object() };
	const struct config *config;
	char **words;
	int code, n;

	code = ctl_parse(c, v, argc, argv, options, 0, 0, &words, &n);
	if (code >= 0) {
		json_object_put(b.sections);
		return code;
	}
	put_host(&b);
	/* Its file may be what is wrong: then what it says is all the more wanted. */
	bundle_configuration(&b, c->config_path);
	config = ctl_config(c);
	if (config) {
		put_status(&b, c->socket ? c->socket : config->socket);
		bundle_pool(&b, config);
	}
	bundle_system(&b);
	put_commands(&b);
	code = output ? write_file(&b, output, json)
		      : (write_out(stdout, &b, json) ? CTL_GOOD : CTL_REFUSED);
	if (code == CTL_GOOD && !config)
		code = CTL_CONFIG;
	json_object_put(b.sections);
	return code;
}

const struct verb verb_report = {
	.name = "report",
	.arguments = "[--json] [--output=FILE]",
	.summary = "collect what whoever helps you will ask for; no row data",
	.help = "  --json         one JSON document instead of text\n"
		"  --output=FILE  into this new file, readable by you alone, instead of standard output\n"
		"\n"
		"Configuration, rules, drop-ins, status, the pool's headers and findings, memory devices,\n"
		"mounts, the journal. No payload of a record and no environment of a process; hosts, users\n"
		"and paths are named. As root it holds more. Works while the daemon is down.\n",
	.run = run,
};
