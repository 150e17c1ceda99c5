/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* pmemlogd: the daemon. Order matters: configuration, folders, pool lock, socket, domains, loop. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/config.h"
#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/loop.h"
#include "daemon/session/listener.h"
#include "pool/dir/pool.h"
#include "pool/guard.h"

struct arguments {
	const char *config;
	bool check_config;
};

static void print_help(void)
{
	printf("pmemlogd " PMEMLOGD_VERSION " - persistent-memory log for databases\n"
	       "\n"
	       "  pmemlogd [-c FILE | --config=FILE] [--check-config]\n"
	       "\n"
	       "  -c, --config=FILE  configuration instead of " CONFIG_DEFAULT_PATH "\n"
	       "      --check-config say what is wrong with the configuration, and end\n"
	       "      --version      print the version, and end\n"
	       "      --help         print this, and end\n"
	       "\n"
	       "Runs in the foreground. SIGTERM: clean stop, everything is destaged first. SIGHUP: reads\n"
	       "the configuration again. A pool is made once, by `pmemlogctl pool create`.\n"
	       "\n"
	       "Keys of the configuration, see pmemlogd.conf(5):\n");
	config_print_keys();
}

/* Returns -1 to go on, or the exit code. */
static int parse_arguments(int argc, char **argv, struct arguments *a)
{
	enum {
		CHECK = 256,
		VERSION,
		HELP
	};
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check-config", no_argument, NULL, CHECK },
		{ "version", no_argument, NULL, VERSION },
		{ "help", no_argument, NULL, HELP },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "c:", options, NULL)) != -1) {
		switch (c) {
		case 'c':
			a->config = optarg;
			break;
		case CHECK:
			a->check_config = true;
			break;
		case VERSION:
			printf("pmemlogd " PMEMLOGD_VERSION "\n");
			return EXIT_SUCCESS;
		case HELP:
			print_help();
			return EXIT_SUCCESS;
		default: /* getopt has said what is wrong */
			fprintf(stderr, "pmemlogd --help lists the options\n");
			return EX_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "pmemlogd: unexpected argument \"%s\"; pmemlogd --help\n",
			argv[optind]);
		return EX_USAGE;
	}
	return -1;
}

/* The socket: systemd's or our own. 0 or an exit code. */
static int get_socket(const struct config *config, int *ret_fd, bool *ret_own)
{
	char error[512] = "";
	int r;

	*ret_own = false;
	r = listener_inherited(ret_fd, error, sizeof(error));
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "%s", error);
		return EX_CONFIG;
	}
	if (r > 0) {
		if (!listener_lies_in(*ret_fd, config->run_dir))
			log_msg(LOG_WARNING, NULL,
				"the socket that systemd handed over does not lie in run_dir, %s: "
				"clients that lose the daemon will not find their control file",
				config->run_dir);
		return 0;
	}
	*ret_own = true;
	r = listener_open(config->socket, ret_fd, error, sizeof(error));
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "%s", error);
		return EXIT_FAILURE;
	}
	return 0;
}

static int serve(struct config *config, const char *config_path, struct pool *pool)
{
	struct pool_error error = { "" };
	cleanup_close int fd = -1;
	struct loop loop;
	bool own_socket;
	int code, r;

	code = get_socket(config, &fd, &own_socket);
	if (code != 0)
		return code;
	r = loop_init(&loop, config, config_path);
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "event loop: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	r = domain_set_new(&loop.domains, pool, config, loop_notify, &loop, &error);
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "domains: %s", error.text[0] ? error.text : strerror(-r));
		loop_deinit(&loop);
		return EXIT_FAILURE;
	}
	r = server_new(&loop.server, loop.event, config, loop.domains, fd, own_socket);
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "socket: %s", strerror(-r));
		code = EXIT_FAILURE;
	} else {
		(void)take_fd(fd);
		code = loop_run(&loop);
	}
	/* Workers may still be at it, or hang in a call, with the pool mapped under them: nothing is
	 * taken away from them, they end with the process. */
	if (code != EXIT_SUCCESS)
		_exit(code);
	loop_deinit(&loop);
	return code;
}

static int run(struct config *config, const char *config_path)
{
	struct pool_error pool_error = { "" };
	char error[512] = "";
	struct pool *pool;
	int code, r;

	r = guard_install();
	if (r == 0)
		r = limits_make_folders(config, error, sizeof(error));
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "%s", error[0] ? error : strerror(-r));
		return EXIT_FAILURE;
	}
	r = pool_open(&pool, config->pool, config->state_dir, config->emulate, false, &pool_error);
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "pool: %s",
			pool_error.text[0] ? pool_error.text : strerror(-r));
		return EXIT_FAILURE;
	}
	if (pool->warning[0])
		log_msg(LOG_WARNING, NULL, "pool: %s", pool->warning);
	if (pool->emulated)
		log_event(LOG_WARNING, LOG_ID_NOT_DURABLE, NULL, NULL,
			  "NOT DURABLE: the pool %s is emulated and does not survive a power cut; "
			  "for tests and trials only",
			  config->pool);
	code = serve(config, config_path, pool);
	pool_close(pool);
	return code;
}

int main(int argc, char **argv)
{
	struct arguments a = { .config = CONFIG_DEFAULT_PATH };
	struct config *config;
	char error[512] = "";
	int code, r;

	code = parse_arguments(argc, argv, &a);
	if (code >= 0)
		return code;
	limits_set();
	r = config_load(&config, a.config, error, sizeof(error));
	if (r < 0) {
		log_init(LOG_ERR);
		if (a.check_config) /* for a person or a script: no priority before it */
			fprintf(stderr, "%s\n", error[0] ? error : strerror(-r));
		else
			log_msg(LOG_ERR, NULL, "%s", error[0] ? error : strerror(-r));
		return EX_CONFIG;
	}
	if (a.check_config) {
		printf("OK\n");
		config_free(config);
		return EXIT_SUCCESS;
	}
	log_init(config->log_level);
	loop_block_signals();
	code = run(config, a.config);
	config_free(config);
	return code;
}
