/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/sys.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/reload.h"

#define LOOP_EXTEND_EVERY_US UINT64_C(5000000)	/* while start or stop take long */
#define LOOP_EXTEND_BY_US    UINT64_C(30000000) /* several of the above may be late */
/* Below TimeoutStopSec= of the service (5 min): we say why before we are killed. */
#define LOOP_STOP_NS UINT64_C(270000000000)

static const int loop_signals[] = { SIGTERM, SIGINT, SIGHUP };

void loop_block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(loop_signals) / sizeof(*loop_signals); i++)
		sigaddset(&set, loop_signals[i]);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void loop_notify(void *arg)
{
	struct loop *l = arg;
	const uint64_t one = 1;

	(void)!write(l->wake_fd, &one, sizeof(one));
}

/* ---- readiness ----------------------------------------------------------------------------------- */

static void stop_extending(struct loop *l)
{
	l->extend_timer = sd_event_source_disable_unref(l->extend_timer);
}

static void tell_status(struct loop *l)
{
	char status[sizeof(l->status)] = "";

	domain_set_summary(l->domains, status, sizeof(status));
	if (!l->ready && domain_set_decided(l->domains)) {
		l->ready = true;
		stop_extending(l);
		notify_ready(status);
		log_event(LOG_INFO, LOG_ID_READY, NULL, NULL, "ready: %s", status);
	} else if (strcmp(status, l->status) != 0) {
		notify_status(status);
	}
	memcpy(l->status, status, sizeof(status));
}

static int on_extend(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)arg;
	(void)usec;
	notify_extend(LOOP_EXTEND_BY_US);
	if (sd_event_source_set_time_relative(source, LOOP_EXTEND_EVERY_US) < 0)
		return 0;
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void start_extending(struct loop *l)
{
	if (l->extend_timer)
		return;
	(void)sd_event_add_time_relative(l->event, &l->extend_timer, CLOCK_MONOTONIC,
					 LOOP_EXTEND_EVERY_US, 0, on_extend, l);
}

/* ---- stop ---------------------------------------------------------------------------------------- */

/* Destaging may wait for disks: not in the loop, which answers the watchdog. */
static void *stopper(void *arg)
{
	struct loop *l = arg;

	domain_set_stop(l->domains, LOOP_STOP_NS);
	/* release: pairs with on_wake; what the workers did is seen before the loop ends */
	atomic_store_release(&l->stopped, 1);
	loop_notify(l);
	return NULL;
}

static void begin_stop(struct loop *l, const char *signal_name)
{
	l->stopping = true;
	l->stop_began_ns = now_monotonic_ns();
	log_event(LOG_INFO, LOG_ID_STOPPING, NULL, NULL,
		  "%s: stopping, everything is destaged first", signal_name);
	notify_stopping();
	server_stop(l->server);
	stop_extending(l);
	start_extending(l);
	if (pthread_create(&l->stopper, NULL, stopper, l) != 0) {
		log_msg(LOG_ERR, NULL,
			"no thread to stop with: ending at once; what is not destaged stays in the "
			"pool");
		(void)sd_event_exit(l->event, EXIT_FAILURE);
	}
}

static void end_stop(struct loop *l)
{
	bool late = now_monotonic_ns() - l->stop_began_ns >= LOOP_STOP_NS;

	(void)pthread_join(l->stopper, NULL);
	l->domains = NULL;
	if (late)
		log_msg(LOG_ERR, NULL,
			"stopped before everything was destaged: a disk did not answer in time. "
			"Nothing is lost, it stays in the pool until the next start");
	(void)sd_event_exit(l->event, late ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* ---- events -------------------------------------------------------------------------------------- */

static int on_wake(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct loop *l = arg;
	uint64_t count;

	(void)source;
	(void)events;
	(void)!read(fd, &count, sizeof(count));
	if (!l->stopping)
		tell_status(l);
	else if (atomic_load_acquire(&l->stopped)) /* pairs with stopper */
		end_stop(l);
	return 0;
}

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
	struct loop *l = arg;
	const char *name = info->ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";

	(void)source;
	if (!l->stopping) {
		begin_stop(l, name);
		return 0;
	}
	/* The second one is somebody who does not want to wait: as good as a kill, which is safe. */
	log_msg(LOG_WARNING, NULL,
		"%s again: ending without waiting; what is not destaged stays in the pool", name);
	_exit(EXIT_FAILURE);
}

static int on_reload_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
	struct loop *l = arg;

	(void)source;
	(void)info;
	if (l->stopping)
		return 0;
	notify_reloading();
	if (reload_config(l->config, l->config_path) > 0 && server_reload(l->server) < 0)
		log_msg(LOG_ERR, NULL, "reload: out of memory, the old users and groups stand");
	/* READY=1 ends the reload for systemd; before the first one it would be a lie */
	if (l->ready)
		notify_ready(l->status);
	return 0;
}

int loop_init(struct loop *l, struct config *config, const char *config_path)
{
	int r;

	*l = (struct loop){ .config = config, .config_path = config_path };
	l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->wake_fd < 0)
		return -errno;
	r = sd_event_new(&l->event);
	if (r >= 0)
		r = sd_event_set_watchdog(l->event, true);
	if (r >= 0)
		r = sd_event_add_signal(l->event, NULL, SIGTERM, on_stop_signal, l);
	if (r >= 0)
		r = sd_event_add_signal(l->event, NULL, SIGINT, on_stop_signal, l);
	if (r >= 0)
		r = sd_event_add_signal(l->event, NULL, SIGHUP, on_reload_signal, l);
	if (r >= 0)
		r = sd_event_add_io(l->event, &l->wake_source, l->wake_fd, EPOLLIN, on_wake, l);
	return r < 0 ? r : 0;
}

int loop_run(struct loop *l)
{
	int r;

	tell_status(l);
	if (!l->ready)
		start_extending(l);
	r = sd_event_loop(l->event);
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "event loop: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	l->server = server_free(l->server);
	return r;
}

void loop_deinit(struct loop *l)
{
	stop_extending(l);
	sd_event_source_disable_unref(l->wake_source);
	sd_event_unref(l->event);
	if (l->wake_fd >= 0)
		(void)close(l->wake_fd);
	*l = (struct loop){ .wake_fd = -1 };
}
