/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/completion.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void completion_drain(struct completion *c)
{
	struct completion_node *node;

	pthread_mutex_lock(&c->lock);
	node = c->first;
	c->first = NULL;
	c->last = &c->first;
	pthread_mutex_unlock(&c->lock);
	while (node) {
		struct completion_node *next = node->next; /* each() may free it */

		c->each(node, c->arg);
		node = next;
	}
}

static int on_eventfd(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	uint64_t count;

	(void)source;
	(void)events;
	/* The counter goes to zero before the queue is emptied: a post in between wakes us again. */
	(void)!read(fd, &count, sizeof(count));
	completion_drain(arg);
	return 0;
}

int completion_init(struct completion *c, sd_event *event,
		    void (*each)(struct completion_node *node, void *arg), void *arg)
{
	int r;

	*c = (struct completion){ .each = each, .arg = arg };
	c->last = &c->first;
	pthread_mutex_init(&c->lock, NULL);
	c->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	r = sd_event_add_io(event, &c->source, c->fd, EPOLLIN, on_eventfd, c);
	if (r < 0)
		return r;
	return sd_event_source_set_description(c->source, "completions");
}

void completion_post(struct completion *c, struct completion_node *node)
{
	const uint64_t one = 1;

	node->next = NULL;
	pthread_mutex_lock(&c->lock);
	*c->last = node;
	c->last = &node->next;
	/* under the lock: deinit closes the descriptor when the last node was taken out */
	(void)!write(c->fd, &one, sizeof(one));
	pthread_mutex_unlock(&c->lock);
}

void completion_deinit(struct completion *c)
{
	if (!c->last)
		return; /* never initialised */
	sd_event_source_disable_unref(c->source);
	if (c->fd >= 0)
		(void)close(c->fd);
	pthread_mutex_destroy(&c->lock);
	*c = (struct completion){ .fd = -1 };
}
