/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* From workers back into the event loop: a queue and an eventfd. */

#include <pthread.h>
#include <stdbool.h>

#include <systemd/sd-event.h>

/* Embedded in what is handed back. */
struct completion_node {
	struct completion_node *next;
};

struct completion {
	pthread_mutex_t lock;
	struct completion_node *first, **last; /* under lock */
	int fd;				       /* eventfd; constant after init */
	sd_event_source *source;
	void (*each)(struct completion_node *node, void *arg); /* in the loop's thread */
	void *arg;
};

/* Returns 0 or a negative errno. Event loop's thread. */
int completion_init(struct completion *c, sd_event *event,
		    void (*each)(struct completion_node *node, void *arg), void *arg);

/* Hands a node over; any thread; never blocks on anything but the queue's own lock. */
void completion_post(struct completion *c, struct completion_node *node);

/* Hands over what lies there now. Event loop's thread. */
void completion_drain(struct completion *c);

/* No thread may post any more. */
void completion_deinit(struct completion *c);
