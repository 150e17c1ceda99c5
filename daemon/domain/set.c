/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* All domains: found by (uid, name), asked, stopped. */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"
#include "daemon/domain/internal.h"
#include "daemon/log.h"
#include "pool/guard.h"

/* Picked: frames are below 4 KiB, calls a dozen deep, and libc's own. */
#define WORKER_STACK_BYTES (512u * 1024u)

static int boot_id_read(uint8_t ret[16])
{
	char text[64] = "";
	unsigned n = 0;
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f)
		return -errno;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	(void)fclose(f);
	for (const char *p = text; *p && n < 32; p++) {
		int digit;

		if (*p >= '0' && *p <= '9')
			digit = *p - '0';
		else if (*p >= 'a' && *p <= 'f')
			digit = *p - 'a' + 10;
		else
			continue;
		ret[n / 2] = (uint8_t)(n % 2 ? ret[n / 2] | digit : digit << 4);
		n++;
	}
	return n == 32 ? 0 : -EIO;
}

void cond_init(pthread_cond_t *c)
{
	pthread_condattr_t a;

	(void)pthread_condattr_init(&a);
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	(void)pthread_cond_init(c, &a);
	(void)pthread_condattr_destroy(&a);
}

static int open_folder(const char *run_dir, const char *name, int *ret)
{
	cleanup_close int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *ret < 0 ? -errno : 0;
}

static void set_close(struct domain_set *set)
{
	if (set->control_fd >= 0)
		(void)close(set->control_fd);
	if (set->bypass_fd >= 0)
		(void)close(set->bypass_fd);
}

static bool name_good(const char *name)
{
	size_t n = strnlen(name, CTL_DOMAIN_MAX);

	if (n == 0 || n >= CTL_DOMAIN_MAX)
		return false;
	for (; *name; name++)
		if ((unsigned char)*name <= ' ' || *name == 0x7f || *name == '/')
			return false;
	return true;
}

static struct domain *find_locked(struct domain_set *set, uint32_t uid, const char *name)
{
	struct domain *d;

	for (d = set->first; d; d = d->next)
		if (d->uid == uid && strcmp(d->name, name) == 0)
			return d;
	return NULL;
}

struct domain *domain_find(struct domain_set *set, uint32_t uid, const char *name)
{
	struct domain *d;

	pthread_mutex_lock(&set->lock);
	d = find_locked(set, uid, name);
	pthread_mutex_unlock(&set->lock);
	return d;
}

static int start(struct domain *d)
{
	sigset_t all, old;
	pthread_attr_t a;
	int r;

	/* Signals are the event loop's; SIGBUS is each thread's own (guard.h). */
	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGBUS);
	(void)sigdelset(&all, SIGSEGV);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	(void)pthread_attr_init(&a);
	(void)pthread_attr_setstacksize(&a, WORKER_STACK_BYTES);
	r = pthread_create(&d->thread, &a, domain_worker, d);
	(void)pthread_attr_destroy(&a);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

static struct domain *domain_free(struct domain *d)
{
	if (d) {
		(void)pthread_mutex_destroy(&d->lock);
		(void)pthread_mutex_destroy(&d->map_lock);
		free(d);
	}
	return NULL;
}

/* A new domain with its worker, into the list. set->lock is held. */
static int add_locked(struct domain_set *set, uint32_t uid, const char *name,
		      enum domain_state state, struct domain **ret)
{
	struct domain *d;
	int r;

	if (set->count >= POOL_DOMAINS)
		return -ENOSPC;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->set = set;
	d->uid = uid;
	(void)snprintf(d->name, sizeof(d->name), "%s", name);
	(void)pthread_mutex_init(&d->lock, NULL);
	(void)pthread_mutex_init(&d->map_lock, NULL);
	d->queue_end = &d->queue;
	d->state = state;
	d->sleep_word = &d->own_sleep;
	d->catalog = UINT32_MAX;
	d->lane_fd = -1;
	r = start(d);
	if (r < 0) {
		domain_free(d);
		return r;
	}
	*set->end = d;
	set->end = &d->next;
	set->count++;
	*ret = d;
	return 0;
}

int domain_set_new(struct domain_set **ret, struct pool *p, const struct config *c,
		   void (*notify)(void *arg), void *arg, struct pool_error *e)
{
	struct domain_set *set;
	struct pool_domain pd;
	struct domain *d;
	int r;

	set = calloc(1, sizeof(*set));
	if (!set)
		return -ENOMEM;
	set->pool = p;
	set->config = c;
	set->notify = notify;
	set->notify_arg = arg;
	set->end = &set->first;
	set->control_fd = set->bypass_fd = -1;
	(void)pthread_mutex_init(&set->lock, NULL);
	cond_init(&set->exited);
	(void)pthread_mutex_init(&set->pool_lock, NULL);
	(void)pthread_mutex_init(&set->beat_lock, NULL);
	r = boot_id_read(set->boot_id);
	if (r == 0)
		r = open_folder(c->run_dir, "control", &set->control_fd);
	if (r == 0)
		r = open_folder(c->run_dir, "bypass", &set->bypass_fd);
	if (r == 0)
		r = guard_install();
	if (r == 0)
		r = beat_start(set);
	if (r < 0) {
		(void)snprintf(e->text, sizeof(e->text), "%.400s: %s", c->run_dir, strerror(-r));
		set_close(set);
		free(set);
		return r;
	}

	for (uint32_t i = 0; i < POOL_DOMAINS; i++) {
		r = catalog_domain_get(p, i, &pd);
		if (r == -EBADMSG)
			log_msg(LOG_ERR, NULL,
				"%s: entry %u of the catalog is damaged: its domain "
				"is not served",
				p->path, i);
		if (r < 0)
			continue;
		pd.name[sizeof(pd.name) - 1] = '\0';
		pthread_mutex_lock(&set->lock);
		r = add_locked(set, pd.uid, pd.name, STATE_UNDECIDED, &d);
		pthread_mutex_unlock(&set->lock);
		if (r < 0) {
			(void)snprintf(e->text, sizeof(e->text), "domain %s: %s", pd.name,
				       strerror(-r));
			(void)domain_set_stop(set, 10 * SECOND_NS);
			return r;
		}
	}
	*ret = set;
	return 0;
}

bool domain_set_decided(const struct domain_set *set)
{
	struct domain_set *s = (struct domain_set *)(uintptr_t)set;
	bool decided = true;

	pthread_mutex_lock(&s->lock);
	for (struct domain *d = s->first; d; d = d->next) {
		pthread_mutex_lock(&d->lock);
		decided = decided && d->state != STATE_UNDECIDED;
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return decided;
}

void domain_submit(struct domain_set *set, uint32_t uid, const char *name, struct domain_request *r)
{
	struct domain *d = NULL;
	int rc = 0;

	r->status = 0;
	r->exit_code = 0;
	r->text[0] = '\0';
	r->control_fd = r->lane_fd = r->out_fd = -1;
	r->report = NULL;
	r->goal = 0;

	pthread_mutex_lock(&set->lock);
	if (set->stopping)
		rc = -ESHUTDOWN;
	else
		d = find_locked(set, uid, name);
	if (rc == 0 && !d && r->kind == DOMAIN_HELLO)
		rc = name_good(name) ? add_locked(set, uid, name, STATE_OK, &d) : -EINVAL;
	pthread_mutex_unlock(&set->lock);

	if (d)
		domain_push(d, r);
	else if (rc < 0)
		request_done(r, rc, 1, "%s",
			     rc == -EINVAL ? "bad name of a domain" : strerror(-rc));
	else if (r->kind == DOMAIN_GATE)
		request_done(r, 0, 0, NULL);
	else
		request_done(r, -ENOENT, 1, "no such domain");
}

void domain_hangup(struct domain_set *set, uint32_t uid, const char *name)
{
	struct domain *d;

	pthread_mutex_lock(&set->lock);
	d = find_locked(set, uid, name);
	pthread_mutex_unlock(&set->lock);
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->look = true;
	pthread_mutex_unlock(&d->lock);
	domain_wake(d);
}

/* USER/NAME, NAME or "": *ret_uid UINT32_MAX means any. */
static int parse_filter(const char *filter, uint32_t *ret_uid, const char **ret_name)
{
	const char *slash = strchr(filter, '/');
	char user[128], buf[2048], *end;
	struct passwd pw, *found = NULL;
	unsigned long n;

	*ret_uid = UINT32_MAX;
	*ret_name = filter;
	if (!slash)
		return 0;
	*ret_name = slash + 1;
	if ((size_t)(slash - filter) >= sizeof(user) || slash == filter)
		return -EINVAL;
	memcpy(user, filter, (size_t)(slash - filter));
	user[slash - filter] = '\0';
	if (getpwnam_r(user, &pw, buf, sizeof(buf), &found) == 0 && found) {
		*ret_uid = found->pw_uid;
		return 0;
	}
	errno = 0;
	n = strtoul(user, &end, 10);
	if (errno || *end || n >= UINT32_MAX || user[0] < '0' || user[0] > '9')
		return -EINVAL;
	*ret_uid = (uint32_t)n;
	return 0;
}

int domain_filter_each(struct domain_set *set, const char *filter,
		       void (*each)(void *arg, struct domain *d), void *arg)
{
	const char *name;
	uint32_t uid;
	int n = 0, r;
	struct domain *d;

	r = parse_filter(filter, &uid, &name);
	if (r < 0)
		return r;
	pthread_mutex_lock(&set->lock);
	d = set->first;
	pthread_mutex_unlock(&set->lock);
	while (d) {
		if ((uid == UINT32_MAX || d->uid == uid) &&
		    (!*name || strcmp(d->name, name) == 0)) {
			each(arg, d);
			n++;
		}
		pthread_mutex_lock(&set->lock);
		d = d->next;
		pthread_mutex_unlock(&set->lock);
	}
	return n;
}

struct each_name {
	void (*each)(void *arg, uint32_t uid, const char *name);
	void *arg;
};

static void call_each(void *arg, struct domain *d)
{
	struct each_name *e = arg;

	e->each(e->arg, d->uid, d->name);
}

int domain_set_each(struct domain_set *set, const char *filter,
		    void (*each)(void *arg, uint32_t uid, const char *name), void *arg)
{
	struct each_name e = { each, arg };

	return domain_filter_each(set, filter, call_each, &e);
}

struct domain_set *domain_set_stop(struct domain_set *set, uint64_t timeout_ns)
{
	uint64_t until = now_monotonic_ns() + timeout_ns;
	struct timespec t = { .tv_sec = (time_t)(until / SECOND_NS),
			      .tv_nsec = (long)(until % SECOND_NS) };
	struct domain *d, *next;
	bool all = true;

	pthread_mutex_lock(&set->lock);
	set->stopping = true;
	pthread_mutex_unlock(&set->lock);
	for (d = set->first; d; d = d->next) {
		pthread_mutex_lock(&d->lock);
		d->stop = true;
		pthread_mutex_unlock(&d->lock);
		domain_wake(d);
	}
	for (d = set->first; d; d = d->next) {
		bool exited;

		pthread_mutex_lock(&set->lock);
		while (!d->exited && now_monotonic_ns() < until)
			(void)pthread_cond_timedwait(&set->exited, &set->lock, &t);
		exited = d->exited;
		pthread_mutex_unlock(&set->lock);
		if (exited) {
			(void)pthread_join(d->thread, NULL);
		} else {
			log_msg(LOG_WARNING, d->name,
				"does not stop in time: its records are safe in the pool");
			all = false;
		}
	}
	beat_stop(set);
	/* A worker that hangs in a file call still uses all of this: it ends with the process. */
	if (!all)
		return NULL;
	for (d = set->first; d; d = next) {
		next = d->next;
		domain_free(d);
	}
	set_close(set);
	(void)pthread_cond_destroy(&set->beat_cond);
	(void)pthread_cond_destroy(&set->exited);
	(void)pthread_mutex_destroy(&set->beat_lock);
	(void)pthread_mutex_destroy(&set->pool_lock);
	(void)pthread_mutex_destroy(&set->lock);
	free(set);
	return NULL;
}
