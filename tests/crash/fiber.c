/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/crash/fiber.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/crash/world.h"

#define WAITS_MAX \
	40u /* looks at a lock while nobody else runs; a dead owner is seen at the second */

enum reason {
	SWITCHED,
	BLOCKED,
	ENDED,
};

struct fiber {
	pthread_t thread;
	sem_t go;
	struct fiber_call call;
	bool done, blocked;
};

static struct fiber fibers[2];
static sem_t back;
static int running = -1; /* index; -1: nobody */
static enum reason why;
static bool made;

static void wait_for(sem_t *s)
{
	while (sem_wait(s) < 0 && errno == EINTR)
		;
}

static void *loop(void *arg)
{
	struct fiber *f = arg;

	for (;;) {
		wait_for(&f->go);
		f->call.body(f->call.arg);
		why = ENDED;
		(void)sem_post(&back);
	}
	return NULL;
}

static void make(void)
{
	if (made)
		return;
	made = true;
	if (sem_init(&back, 0, 0) < 0)
		abort();
	for (int i = 0; i < 2; i++)
		if (sem_init(&fibers[i].go, 0, 0) < 0 ||
		    pthread_create(&fibers[i].thread, NULL, loop, &fibers[i]) != 0) {
			perror("thread");
			exit(2);
		}
}

static void resume(int i)
{
	running = i;
	world_act(fibers[i].call.actor);
	(void)sem_post(&fibers[i].go);
	wait_for(&back);
}

static void yield(enum reason r)
{
	struct fiber *f = &fibers[running];

	why = r;
	(void)sem_post(&back);
	wait_for(&f->go);
}

bool fibers_active(void)
{
	return running >= 0;
}

void fiber_step(uint64_t own_steps)
{
	if (running >= 0 && fibers[running].call.switch_at == own_steps)
		yield(SWITCHED);
}

void fiber_wait(void)
{
	if (running >= 0)
		yield(BLOCKED);
}

bool fibers_run(const struct fiber_call call[2])
{
	unsigned waits = 0;
	bool good = true;
	int i = 0;

	make();
	for (int k = 0; k < 2; k++) {
		fibers[k].call = call[k];
		fibers[k].done = fibers[k].blocked = false;
	}
	while (!fibers[0].done || !fibers[1].done) {
		struct fiber *f = &fibers[i], *other = &fibers[1 - i];

		resume(i);
		if (why == ENDED) {
			f->done = true;
			other->blocked = false;
		} else if (why == BLOCKED) {
			f->blocked = true;
		} else if (other->done || other->blocked) {
			continue; /* it waits: no use in letting it look again */
		}
		/* Alone, or each waits for the other: for a moment, or for ever. */
		if (why == BLOCKED && (other->done || other->blocked) && ++waits > WAITS_MAX) {
			good = false;
			world_kill(f->call.actor);
			world_kill(other->call.actor);
		}
		if (!other->done)
			i = 1 - i;
	}
	running = -1;
	return good;
}
