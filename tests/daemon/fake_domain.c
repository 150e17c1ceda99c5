/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * domain.h and pool_open for tests of the outer daemon: one worker thread that answers as its
 * environment says.
 *
 *	FAKE_DECIDE_MS	after that time every domain is decided (default 0)
 *	FAKE_STOP_MS	how long domain_set_stop takes
 *	FAKE_WORK_MS	how long the worker has each request
 *	FAKE_DOMAINS	"UID/NAME,UID/NAME": domains there from the start
 *	FAKE_POOL_BUSY	pool_open fails as if another daemon had the lock
 *
 * HELLO to a domain called `held` is refused with -EBUSY.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "daemon/domain/domain.h"
#include "daemon/log.h"
#include "pool/guard.h"

#define FAKE_MAX 256

struct fake_domain {
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
};

struct fake_job {
	uint32_t uid;
	char name[CTL_DOMAIN_MAX];
	struct domain_request *request;
	struct fake_job *next;
};

struct domain_set {
	const struct config *config;
	void (*notify)(void *arg);
	void *notify_arg;
	pthread_t worker;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_job *first, **last; /* under lock */
	struct fake_domain domains[FAKE_MAX];
	unsigned n;
	bool end;
	int decided;  /* atomic */
	int hangups;  /* atomic */
	int requests; /* atomic */
};

static long env_ms(const char *name)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : 0;
}

static void sleep_ms(long ms)
{
	if (ms > 0)
		(void)usleep((useconds_t)ms * 1000);
}

/* ---- pool ---------------------------------------------------------------------------------------- */

int guard_install(void)
{
	return 0;
}

int pool_open(struct pool **ret, const char *path, const char *state_dir, bool emulate,
	      bool read_only, struct pool_error *ret_error)
{
	struct pool *p;

	(void)state_dir;
	(void)read_only;
	if (getenv("FAKE_POOL_BUSY")) {
		(void)snprintf(ret_error->text, sizeof(ret_error->text),
			       "in use by another pmemlogd");
		return -EBUSY;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->path = strdup(path);
	p->emulated = emulate;
	*ret = p;
	return 0;
}

struct pool *pool_close(struct pool *p)
{
	if (p)
		free(p->path);
	free(p);
	return NULL;
}

/* ---- worker -------------------------------------------------------------------------------------- */

static void answer(struct domain_set *set, struct fake_job *job)
{
	struct domain_request *r = job->request;
	struct stat st;

	switch (r->kind) {
	case DOMAIN_HELLO:
		if (strcmp(job->name, "held") == 0) {
			r->status = -EBUSY;
			(void)snprintf(r->text, sizeof(r->text), "held by the test");
			break;
		}
		r->control_fd = memfd_create("control", MFD_CLOEXEC);
		r->lane_fd = memfd_create("lane", MFD_CLOEXEC);
		r->lane = 7;
		r->incarnation = 0x1122334455667788u;
		break;
	case DOMAIN_REGISTER:
		r->status = fstat(r->fd, &st) < 0 ? -errno : 0;
		(void)close(r->fd);
		r->entry = 3;
		r->state = FILE_LANE;
		r->id = (uint64_t)st.st_ino;
		break;
	case DOMAIN_FLUSH:
	case DOMAIN_GATE:
	case DOMAIN_LOG:
	case DOMAIN_LOG_LIST:
		(void)snprintf(r->text, sizeof(r->text), "done");
		break;
	case DOMAIN_RECOVER:
		if (r->fd >= 0)
			(void)close(r->fd);
		r->report = json_object_new_object();
		json_object_object_add(r->report, "domain", json_object_new_string(job->name));
		break;
	}
	(void)atomic_add_seq(&set->requests, 1);
	r->done(r);
}

static void *work(void *arg)
{
	struct domain_set *set = arg;

	sleep_ms(env_ms("FAKE_DECIDE_MS"));
	atomic_store_seq(&set->decided, 1);
	set->notify(set->notify_arg);
	pthread_mutex_lock(&set->lock);
	for (;;) {
		struct fake_job *job = set->first;

		if (job) {
			set->first = job->next;
			if (!set->first)
				set->last = &set->first;
			pthread_mutex_unlock(&set->lock);
			sleep_ms(env_ms("FAKE_WORK_MS"));
			answer(set, job);
			free(job);
			set->notify(set->notify_arg);
			pthread_mutex_lock(&set->lock);
		} else if (set->end) {
			break;
		} else {
			pthread_cond_wait(&set->changed, &set->lock);
		}
	}
	pthread_mutex_unlock(&set->lock);
	return NULL;
}

static void add_domain(struct domain_set *set, uint32_t uid, const char *name)
{
	for (unsigned i = 0; i < set->n; i++)
		if (set->domains[i].uid == uid && strcmp(set->domains[i].name, name) == 0)
			return;
	if (set->n == FAKE_MAX)
		return;
	set->domains[set->n].uid = uid;
	(void)snprintf(set->domains[set->n].name, CTL_DOMAIN_MAX, "%s", name);
	set->n++;
}

static void add_from_environment(struct domain_set *set)
{
	const char *at = getenv("FAKE_DOMAINS");
	char name[CTL_DOMAIN_MAX];
	unsigned uid;
	int used;

	while (at && sscanf(at, "%u/%63[^,]%n", &uid, name, &used) == 2) {
		add_domain(set, uid, name);
		at += used;
		at = *at == ',' ? at + 1 : NULL;
	}
}

int domain_set_new(struct domain_set **ret, struct pool *p, const struct config *c,
		   void (*notify)(void *arg), void *arg, struct pool_error *ret_error)
{
	struct domain_set *set = calloc(1, sizeof(*set));

	(void)p;
	(void)ret_error;
	if (!set)
		return -ENOMEM;
	set->config = c;
	set->notify = notify;
	set->notify_arg = arg;
	set->last = &set->first;
	pthread_mutex_init(&set->lock, NULL);
	pthread_cond_init(&set->changed, NULL);
	add_from_environment(set);
	*ret = set;
	return -pthread_create(&set->worker, NULL, work, set);
}

bool domain_set_decided(const struct domain_set *set)
{
	return atomic_load_seq(&set->decided) != 0;
}

void domain_submit(struct domain_set *set, uint32_t uid, const char *name, struct domain_request *r)
{
	struct fake_job *job = calloc(1, sizeof(*job));

	if (!job)
		abort();
	job->uid = uid;
	job->request = r;
	(void)snprintf(job->name, sizeof(job->name), "%s", name);
	pthread_mutex_lock(&set->lock);
	if (r->kind == DOMAIN_HELLO)
		add_domain(set, uid, name);
	*set->last = job;
	set->last = &job->next;
	pthread_cond_signal(&set->changed);
	pthread_mutex_unlock(&set->lock);
}

void domain_log_user(struct domain_set *set, uint32_t uid, const char *name, int change)
{
	(void)set;
	(void)uid;
	(void)name;
	(void)change;
}

bool domain_log_append(struct domain_set *set, uint32_t uid, const char *name,
		       struct domain_request *r)
{
	(void)set;
	(void)uid;
	(void)name;
	(void)r;
	return false;
}

void domain_hangup(struct domain_set *set, uint32_t uid, const char *name)
{
	(void)atomic_add_seq(&set->hangups, 1);
	log_msg(LOG_DEBUG, name, "hangup, user %u", uid);
}

int domain_set_each(struct domain_set *set, const char *filter,
		    void (*each)(void *arg, uint32_t uid, const char *name), void *arg)
{
	const char *slash = strchr(filter, '/');
	const char *name = slash ? slash + 1 : filter;
	int n = 0;

	if (slash && strncmp(filter, "nobody-of-that-name", (size_t)(slash - filter)) == 0)
		return -EINVAL;
	pthread_mutex_lock(&set->lock);
	for (unsigned i = 0; i < set->n; i++) {
		const struct fake_domain *d = &set->domains[i];

		if (*name && strcmp(name, d->name) != 0)
			continue;
		if (slash && strtoul(filter, NULL, 10) != d->uid)
			continue;
		each(arg, d->uid, d->name);
		n++;
	}
	pthread_mutex_unlock(&set->lock);
	return n;
}

struct json_object *domain_set_status(struct domain_set *set, const char *filter,
				      uint32_t *ret_exit)
{
	struct json_object *o = json_object_new_object();

	(void)filter;
	json_object_object_add(o, "hangups", json_object_new_int(atomic_load_seq(&set->hangups)));
	json_object_object_add(o, "requests", json_object_new_int(atomic_load_seq(&set->requests)));
	json_object_object_add(
		o, "destage_age_ns",
		json_object_new_int64((int64_t)config_get(set->config, destage_age_ns)));
	json_object_object_add(o, "last_error", json_object_new_string("\x1b[31m forged"));
	*ret_exit = 0;
	return o;
}

void domain_set_summary(struct domain_set *set, char *buf, size_t n)
{
	(void)snprintf(buf, n, "%s", domain_set_decided(set) ? "all decided" : "deciding");
}

struct domain_set *domain_set_stop(struct domain_set *set, uint64_t timeout_ns)
{
	(void)timeout_ns;
	sleep_ms(env_ms("FAKE_STOP_MS"));
	pthread_mutex_lock(&set->lock);
	set->end = true;
	pthread_cond_signal(&set->changed);
	pthread_mutex_unlock(&set->lock);
	(void)pthread_join(set->worker, NULL);
	pthread_cond_destroy(&set->changed);
	pthread_mutex_destroy(&set->lock);
	free(set);
	return NULL;
}
