/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/dir/media.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmem2.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/cleanup.h"
#include "base/overflow.h"
#include "pool/dir/filesystems.h"
#include "pool/sim.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAKS_ARE_LOOKED_FOR
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LEAKS_ARE_LOOKED_FOR
#endif

#ifdef LEAKS_ARE_LOOKED_FOR
/* libpmem2 1.12: pmem2_map_delete does not free all of what pmem2_map_from_existing made. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
	return "leak:libpmem2.so";
}
#endif

/* libpmem2's object of each mapping, found again by its address: struct lane has no room for it. */
struct mapped {
	struct mapped *next;
	uint8_t *base;
	struct pmem2_map *map;
	bool emulated; /* mapped here and not by libpmem2, so unmapped here too */
};

static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapped *mapped_list;

int pool_refuse(struct pool_error *e, int r, const char *format, ...)
{
	va_list args;

	if (!e)
		return r;
	va_start(args, format);
	(void)vsnprintf(e->text, sizeof(e->text), format, args);
	va_end(args);
	return r;
}

static int remember(uint8_t *base, struct pmem2_map *map, bool emulated)
{
	struct mapped *m = malloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->base = base;
	m->map = map;
	m->emulated = emulated;
	pthread_mutex_lock(&mapped_lock);
	m->next = mapped_list;
	mapped_list = m;
	pthread_mutex_unlock(&mapped_lock);
	return 0;
}

static struct pmem2_map *forget(const uint8_t *base, bool *ret_emulated)
{
	struct pmem2_map *map = NULL;

	pthread_mutex_lock(&mapped_lock);
	for (struct mapped **p = &mapped_list; *p; p = &(*p)->next) {
		struct mapped *m = *p;

		if (m->base != base)
			continue;
		*p = m->next;
		map = m->map;
		*ret_emulated = m->emulated;
		free(m);
		break;
	}
	pthread_mutex_unlock(&mapped_lock);
	return map;
}

static const char *remedy(int64_t type)
{
	switch (type) {
	case FILESYSTEM_EXT4:
		return "ext4 needs a block device with DAX (ndctl: mode fsdax), 4096-byte blocks "
		       "(mkfs.ext4 -b 4096: small file systems get 1 KiB) and the mount option dax=always";
	case FILESYSTEM_XFS:
		return "xfs needs a block device with DAX (ndctl: mode fsdax), mkfs.xfs -m reflink=0 where "
		       "the kernel is older than 6.0, and the mount option dax=always";
	case FILESYSTEM_TMPFS:
		return "tmpfs is plain memory and is lost with the power";
	default:
		return "a file system on persistent memory is needed: ndctl create-namespace --mode fsdax, "
		       "mkfs.ext4 -b 4096 or mkfs.xfs, mount -o dax=always";
	}
}

/* A set-up script may have set the inode's flag and mapped at once: the flag is what the file asks for, not
 * what it gets. */
static const char *flag_words(int fd)
{
	struct fsxattr stored;
	struct statx now;

	if (ioctl(fd, FS_IOC_FSGETXATTR, &stored) < 0 || !(stored.fsx_xflags & FS_XFLAG_DAX))
		return "";
	if (statx(fd, "", AT_EMPTY_PATH, 0, &now) < 0 || (now.stx_attributes & STATX_ATTR_DAX))
		return "";
	return "Its DAX flag is set and not in force (unmount and mount; not with dax=never). ";
}

/* Asks the kernel itself: a MAP_SYNC mapping exists only where stores are durable once flushed. */
static int demand_map_sync(int fd, const char *name, bool read_only, struct pool_error *e)
{
	char type[32];
	int64_t magic = filesystem_type(fd, type, sizeof(type));
	int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *p = mmap(NULL, 4096, protection, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
	int error = errno;

	if (p != MAP_FAILED) {
		munmap(p, 4096);
		return 0;
	}
	if (error != EOPNOTSUPP && error != EINVAL && error != ENODEV)
		return pool_refuse(e, -error, "%s: cannot be mapped: %s", name, strerror(error));
	return pool_refuse(e, -EOPNOTSUPP,
			   "%s: not durable memory: MAP_SYNC is refused on this %s (%s). %s%s. "
			   "Only for tests and trials: emulate = true",
			   name, type, strerror(error), flag_words(fd), remedy(magic));
}

static int map_fsdax(int fd, size_t bytes, bool read_only, const char *name, uint8_t **ret_base,
		     struct pmem2_map **ret_map, struct pool_error *e)
{
	struct pmem2_config *config = NULL;
	struct pmem2_source *source = NULL;
	struct pmem2_map *map = NULL;
	int r = demand_map_sync(fd, name, read_only, e);

	if (r < 0)
		return r;
	r = pmem2_config_new(&config);
	if (r == 0)
		r = pmem2_source_from_fd(&source, fd);
	if (r == 0)
		r = pmem2_config_set_length(config, bytes);
	if (r == 0 && read_only)
		r = pmem2_config_set_protection(config, PMEM2_PROT_READ);
	if (r == 0)
		r = pmem2_config_set_required_store_granularity(config,
								PMEM2_GRANULARITY_CACHE_LINE);
	if (r == 0)
		r = pmem2_map_new(&map, config, source);
	if (r == 0) {
		*ret_map = map;
		*ret_base = pmem2_map_get_address(map);
	} else {
		/* The library's own codes lie below all errnos. */
		r = pool_refuse(e, r > PMEM2_E_UNKNOWN ? r : -EOPNOTSUPP,
				"%s: libpmem2 refuses it: %s", name, pmem2_errormsg());
	}
	pmem2_source_delete(&source);
	pmem2_config_delete(&config);
	return r;
}

/* pmem2_map_new refuses what is not a regular file system or needs page granularity, so the mapping is
 * made here and handed to libpmem2, which then treats it like the real thing. */
static int map_emulated(int fd, size_t bytes, bool read_only, const char *name, uint8_t **ret_base,
			struct pmem2_map **ret_map, struct pool_error *e)
{
	struct pmem2_source *source = NULL;
	void *p;
	int r;

	p = mmap(NULL, bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return pool_refuse(e, -errno, "%s: cannot be mapped: %s", name, strerror(errno));
	r = pmem2_source_from_fd(&source, fd);
	if (r == 0)
		r = pmem2_map_from_existing(ret_map, source, p, bytes,
					    PMEM2_GRANULARITY_CACHE_LINE);
	pmem2_source_delete(&source);
	if (r != 0) {
		munmap(p, bytes);
		return pool_refuse(e, -EIO, "%s: libpmem2 refuses it: %s", name, pmem2_errormsg());
	}
	*ret_base = p;
	return 0;
}

int media_map(int fd, size_t bytes, bool emulated, bool read_only, const char *name,
	      uint8_t **ret_base, struct pool_error *e)
{
	struct pmem2_map *map = NULL;
	uint8_t *base = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return pool_refuse(e, -errno, "%s: %s", name, strerror(errno));
	if (S_ISCHR(st.st_mode))
		return pool_refuse(
			e, -EOPNOTSUPP,
			"%s: device DAX is not supported by this version: make the "
			"namespace fsdax (ndctl create-namespace --mode fsdax) and put a "
			"file system on it",
			name);
	/* A store beyond the end of a shortened file would be a SIGBUS. */
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return pool_refuse(
			e, -ENXIO,
			"%s: %lld bytes long, %zu are needed: it was cut off. Put the whole file "
			"back",
			name, (long long)st.st_size, bytes);

	r = emulated ? map_emulated(fd, bytes, read_only, name, &base, &map, e)
		     : map_fsdax(fd, bytes, read_only, name, &base, &map, e);
	if (r < 0)
		return r;
	r = remember(base, map, emulated);
	if (r == 0 && !read_only) {
		r = sim_map(base, bytes, fd);
		if (r < 0) {
			media_unmap(base, bytes);
			return pool_refuse(e, r, "%s: this is a test build and finds no shadow",
					   name);
		}
	}
	if (r < 0) {
		pmem2_map_delete(&map);
		if (emulated)
			munmap(base, bytes);
		return pool_refuse(e, r, "%s: no memory", name);
	}
	/* A core dump of the daemon would hold every tenant's commits; failure is harmless. */
	(void)madvise(base, bytes, MADV_DONTDUMP);
	*ret_base = base;
	return 0;
}

void media_unmap(uint8_t *base, size_t bytes)
{
	bool emulated = false;
	struct pmem2_map *map;

	if (!base)
		return;
	sim_unmap(base);
	map = forget(base, &emulated);
	if (map)
		(void)pmem2_map_delete(&map);
	/* Of a mapping that it did not make itself, delete only forgets. */
	if (emulated)
		munmap(base, bytes);
}

int media_fill(int fd, uint64_t bytes)
{
	cleanup_free uint8_t *zeros = NULL;
	const size_t step = 1u << 20;
	uint64_t done = 0;
	int r;

	/* Without space it fails here, before anything is written. */
	r = posix_fallocate(fd, 0, (off_t)bytes);
	if (r != 0)
		return -r;
	zeros = calloc(1, step);
	if (!zeros)
		return -ENOMEM;
	/* Written, not only allocated: an unwritten extent would cost a journal transaction at the
	 * first store to each page. */
	while (done < bytes) {
		size_t n = (size_t)min_of((uint64_t)step, bytes - done);
		ssize_t w = pwrite(fd, zeros, n, (off_t)done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		done += (uint64_t)w;
	}
	return fsync(fd) < 0 ? -errno : 0;
}
