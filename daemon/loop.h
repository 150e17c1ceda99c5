/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * The event loop: signals, watchdog, readiness, stop. One thread; it never makes a call on a client's
 * file. While nothing is live it wakes up for the watchdog alone.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "daemon/config.h"
#include "daemon/domain/domain.h"
#include "daemon/session/server.h"

struct loop {
	sd_event *event;
	struct config *config;
	const char *config_path;
	struct domain_set *domains;
	struct server *server;
	int wake_fd; /* eventfd: a domain was decided or has changed; the stopper has ended */
	sd_event_source *wake_source, *extend_timer;
	char status[256]; /* as told last */
	bool ready, stopping;
	pthread_t stopper;
	int stopped; /* atomic: domain_set_stop has returned */
	uint64_t stop_began_ns;
};

/* Blocks SIGTERM, SIGINT and SIGHUP for this and every later thread: before the first one. */
void loop_block_signals(void);

/* Event loop, signals, watchdog. config and config_path stay with the caller. 0 or a negative errno. */
int loop_init(struct loop *l, struct config *config, const char *config_path);

/* notify of domain_set_new, with the loop as argument: any thread, never blocks. */
void loop_notify(void *loop);

/*
 * Runs until a signal: serves (domains and server are set by the caller before), tells readiness when
 * every domain is decided, destages at the end and frees server and domains. Returns the exit code.
 */
int loop_run(struct loop *l);

void loop_deinit(struct loop *l);
