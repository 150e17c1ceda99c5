/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "env.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/sys.h"
#include "pool/dir/catalog.h"
#include "pool/guard.h"
#include "pool/ops.h"

uint64_t env_ms(void)
{
	return now_monotonic_ns() / 1000000u;
}

void env_sleep_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&t, NULL);
}

/* ---- set-up ----------------------------------------------------------------------------------- */

static char *text_of(const char *dir, const char *name)
{
	char *t = NULL;

	if (asprintf(&t, "%s%s%s", dir, *name ? "/" : "", name) < 0)
		abort();
	return t;
}

static void make_dir(const char *dir, const char *name)
{
	char *path = text_of(dir, name);

	assert_int_equal(mkdir(path, 0755), 0);
	free(path);
}

void env_daemon_start(struct env *e)
{
	struct pool_error error = { "" };

	if (pool_open(&e->pool, e->config.pool, e->config.state_dir, true, false, &error) < 0 ||
	    domain_set_new(&e->set, e->pool, &e->config, NULL, NULL, &error) < 0)
		fail_msg("%s", error.text);
	env_wait(5000, domain_set_decided(e->set));
}

void env_daemon_stop(struct env *e)
{
	if (e->set)
		e->set = domain_set_stop(e->set, UINT64_C(10000000000));
	if (e->pool)
		e->pool = pool_close(e->pool);
}

int env_setup(void **state)
{
	const char *base = getenv("DOMAIN_TEST_DIR");
	struct env *e = calloc(1, sizeof(*e));
	struct pool_error error = { "" };
	struct stat st;

	if (!e)
		return -1;
	*state = e;
	/* A file system that the product supports: /tmp may be a tmpfs. */
	(void)snprintf(e->dir, sizeof(e->dir), "%s/domain-XXXXXX", base ? base : "/var/tmp");
	if (!mkdtemp(e->dir))
		return -1;
	make_dir(e->dir, "run");
	make_dir(e->dir, "run/control");
	make_dir(e->dir, "run/bypass");
	make_dir(e->dir, "state");
	make_dir(e->dir, "files");
	e->config = (struct config){
		.changed_lines = true,
		.pool = text_of(e->dir, "pool"),
		.emulate = true,
		.run_dir = text_of(e->dir, "run"),
		.state_dir = text_of(e->dir, "state"),
		.lane_size_bytes = ENV_RING,
		.bypass_size_bytes = 65536,
		.destage_age_ns = UINT64_C(200000000),
		.reconnect_timeout_ns = UINT64_C(1000000000),
		.clock_wait_ns = UINT64_C(1000000000),
	};
	pool_ops_select();
	faults_set(0, 0);
	for (unsigned i = 0; i < 2; i++) {
		(void)snprintf(e->file[i], sizeof(e->file[i]), "%s/files/log%u", e->dir, i);
		e->fd[i] = open(e->file[i], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (e->fd[i] < 0 || fstat(e->fd[i], &st) < 0)
			return -1;
		e->ino[i] = st.st_ino;
	}
	client_start(&e->a);
	client_start(&e->b);
	if (pool_create(e->config.pool, e->config.state_dir, true, false, &error) < 0)
		fail_msg("%s", error.text);
	env_daemon_start(e);
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int env_teardown(void **state)
{
	struct env *e = *state;

	faults_set(0, 0);
	client_end(&e->a, 1);
	client_end(&e->b, 1);
	env_daemon_stop(e);
	for (unsigned i = 0; i < 2; i++)
		(void)close(e->fd[i]);
	(void)nftw(e->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(e->config.pool);
	free(e->config.run_dir);
	free(e->config.state_dir);
	free(e);
	return 0;
}

/* ---- requests --------------------------------------------------------------------------------- */

struct waiting {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int done;
};

static void on_done(struct domain_request *r)
{
	struct waiting *w = r->arg;

	pthread_mutex_lock(&w->lock);
	w->done++;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void path_of(int fd, char *buf, size_t n)
{
	char name[64];
	ssize_t r;

	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	r = readlink(name, buf, n - 1);
	buf[r < 0 ? 0 : r] = '\0';
}

struct answer env_ask(struct env *e, enum domain_request_kind kind, const char *domain, int fd,
		      uint32_t mode)
{
	struct waiting w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };
	struct domain_request r = {
		.kind = kind, .fd = fd, .mode = mode, .done = on_done, .arg = &w
	};
	struct answer a;

	/* CMocka puts a handler of its own in place at the start of each test. */
	assert_int_equal(guard_install(), 0);
	if (kind == DOMAIN_REGISTER)
		path_of(fd, r.path, sizeof(r.path));
	domain_submit(e->set, (uint32_t)geteuid(), domain, &r);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	assert_int_equal(w.done, 1);
	a = (struct answer){ .status = r.status,
			     .exit_code = r.exit_code,
			     .lane = r.lane,
			     .entry = r.entry,
			     .state = r.state,
			     .id = r.id,
			     .incarnation = r.incarnation,
			     .control_fd = r.control_fd,
			     .lane_fd = r.lane_fd };
	memcpy(a.text, r.text, sizeof(a.text));
	json_object_put(r.report);
	return a;
}

struct answer env_join(struct env *e, struct client *c, unsigned n, const char *domain)
{
	struct client_command k = { .op = CLIENT_ATTACH };
	struct answer hello, reg;
	int fds[2], fd = -1;

	hello = env_ask(e, DOMAIN_HELLO, domain, -1, WIRE_WANT_LANE);
	if (hello.status < 0)
		fail_msg("HELLO: %d %s", hello.status, hello.text);
	fds[0] = hello.control_fd;
	fds[1] = hello.lane_fd;
	assert_int_equal(client_do(c, &k, fds, NULL), 0);
	(void)close(fds[0]);
	(void)close(fds[1]);

	k = (struct client_command){ .op = CLIENT_OPEN };
	(void)snprintf(k.path, sizeof(k.path), "%s", e->file[n]);
	assert_int_equal(client_do(c, &k, NULL, &fd), 0);
	reg = env_ask(e, DOMAIN_REGISTER, domain, fd, 0);
	reg.lane = hello.lane;
	reg.incarnation = hello.incarnation;
	if (reg.status == 0) {
		k = (struct client_command){ .op = CLIENT_BIND, .a = reg.entry, .b = reg.id };
		assert_int_equal(client_do(c, &k, NULL, NULL), 0);
	}
	return reg;
}

int64_t env_write(struct client *c, uint64_t offset, uint64_t n, uint8_t byte)
{
	struct client_command k = { .op = CLIENT_WRITE, .a = offset, .b = n, .c = byte };

	return client_do(c, &k, NULL, NULL);
}

int64_t env_op(struct client *c, enum client_op op)
{
	struct client_command k = { .op = op };

	return client_do(c, &k, NULL, NULL);
}

/* ---- looking ---------------------------------------------------------------------------------- */

typedef void look_fn(struct json_object *value, void *arg);

static void look_at(struct env *e, const char *domain, const char *path, const char *key,
		    look_fn *look, void *arg)
{
	uint32_t exit_code = 0;
	struct json_object *doc = domain_set_status(e->set, "", &exit_code), *list, *value, *files;

	list = json_object_object_get(doc, "domains");
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *d = json_object_array_get_idx(list, i);

		if (strcmp(json_object_get_string(json_object_object_get(d, "name")), domain) != 0)
			continue;
		if (!path) {
			if (json_object_object_get_ex(d, key, &value))
				look(value, arg);
			continue;
		}
		files = json_object_object_get(d, "files");
		for (size_t j = 0; j < json_object_array_length(files); j++) {
			struct json_object *f = json_object_array_get_idx(files, j);
			struct json_object *p = json_object_object_get(f, "id");

			/* By id: the paths that these tests pass are all alike. */
			if (json_object_get_int64(p) == atoll(path) &&
			    json_object_object_get_ex(f, key, &value))
				look(value, arg);
		}
	}
	json_object_put(doc);
}

static void look_number(struct json_object *value, void *arg)
{
	*(int64_t *)arg = json_object_get_int64(value);
}

struct text {
	char *buf;
	size_t n;
};

static void look_string(struct json_object *value, void *arg)
{
	struct text *t = arg;

	(void)snprintf(t->buf, t->n, "%s", json_object_get_string(value));
}

int64_t env_number(struct env *e, const char *domain, const char *key)
{
	int64_t n = -1;

	look_at(e, domain, NULL, key, look_number, &n);
	return n;
}

void env_string(struct env *e, const char *domain, const char *key, char *buf, size_t n)
{
	struct text t = { buf, n };

	buf[0] = '\0';
	look_at(e, domain, NULL, key, look_string, &t);
}

int64_t env_file_number(struct env *e, const char *domain, uint64_t id, const char *key)
{
	char text[32];
	int64_t n = -1;

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
	look_at(e, domain, text, key, look_number, &n);
	return n;
}

void env_file_string(struct env *e, const char *domain, uint64_t id, const char *key, char *buf,
		     size_t n)
{
	struct text t = { buf, n };
	char text[32];

	buf[0] = '\0';
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
	look_at(e, domain, text, key, look_string, &t);
}

bool env_state_is(struct env *e, const char *domain, const char *state)
{
	char text[64];

	env_string(e, domain, "state", text, sizeof(text));
	return strcmp(text, state) == 0;
}

bool env_file_is(struct env *e, const char *domain, uint64_t id, const char *state)
{
	char text[64];

	env_file_string(e, domain, id, "state", text, sizeof(text));
	return strcmp(text, state) == 0;
}

bool env_marked(struct env *e, unsigned n)
{
	return fgetxattr(e->fd[n], "user.pmemlogd.owner", NULL, 0) >= 0;
}

unsigned env_catalog_files(struct env *e)
{
	struct pool_file f;
	unsigned n = 0;

	for (uint32_t i = 0; i < POOL_FILES; i++)
		n += catalog_file_get(e->pool, i, &f) == 0;
	return n;
}

bool env_control_there(struct env *e, uint32_t lane)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/control/%u", e->config.run_dir, lane);
	return access(path, F_OK) == 0;
}

int env_byte(struct env *e, unsigned n, uint64_t offset)
{
	unsigned char byte = 0;

	return pread(e->fd[n], &byte, 1, (off_t)offset) == 1 ? byte : -1;
}

void env_lose_pages(struct env *e, unsigned n, uint64_t offset, uint64_t bytes)
{
	void *zero = calloc(1, bytes);

	assert_int_equal(pwrite(e->fd[n], zero, bytes, (off_t)offset), (ssize_t)bytes);
	free(zero);
}
