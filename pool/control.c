/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pool/control.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "abi/lane.h"
#include "base/atomic.h"
#include "base/sys.h"

#define HEAD_TRIES \
	1000u /* picked: a publish takes ns, so only a hostile peer moves it that often */

/* A control file without images, or with them: an older daemon's ends at CTL_BYTES. */
static int map_file(struct control *ret, int fd, uint64_t bytes)
{
	long base = sys_call6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t *p;

	if (base < 0 && base > -4096)
		return (int)base;
	p = (uint8_t *)base;
	*ret = (struct control){
		.fd = fd,
		.head = (void *)p,
		.bytes = bytes,
		.hot = (void *)(p + CTL_HOT_OFFSET),
		.slots = (void *)(p + CTL_SLOTS_OFFSET),
		.files = (void *)(p + CTL_FILES_OFFSET),
	};
	if (bytes < CTL_ALL_BYTES)
		return 0;
	ret->images = (void *)(p + CTL_BYTES);
	ret->image_bytes = p + CTL_IMAGES_OFFSET;
	/* Log data in a core file: only where the lane itself would be. Advice; a refusal is none. */
	(void)sys_call3(SYS_madvise, ret->image_bytes, (long)(bytes - CTL_IMAGES_OFFSET),
			MADV_DONTDUMP);
	return 0;
}

int control_create(struct control *ret, int fd, const struct ctl_head *src, uint64_t position,
		   uint32_t chain)
{
	struct ctl_head head = *src;
	uint64_t bytes = head.images ? CTL_ALL_BYTES : CTL_BYTES;
	int r;

	if (position % LANE_ALIGN != 0)
		return -EINVAL;
	r = (int)sys_call2(SYS_ftruncate, fd, (long)bytes);
	if (r < 0)
		return r;
	/* Allocated whole: a full tmpfs must fail here and not as a SIGBUS in a database. */
	r = (int)sys_call4(SYS_fallocate, fd, 0, 0, (long)bytes);
	if (r < 0)
		return r;
	r = map_file(ret, fd, bytes);
	if (r < 0)
		return r;

	memcpy(head.magic, CTL_MAGIC, sizeof(head.magic));
	head.version = CTL_VERSION;
	head.state = CTL_NEW;
	head.size = CTL_BYTES;
	head.slots = CTL_SLOTS;
	head.files = CTL_FILES;
	head.images = head.images ? CTL_IMAGES : 0;
	memset(head.frozen, 0, sizeof(head.frozen));
	*ret->head = head;
	ret->hot->tail = position;
	ret->hot->cell[0] = (struct ctl_cell){ .head = position, .chain = chain };
	ret->hot->cell[1] = ret->hot->cell[0];
	return 0;
}

int control_map(struct control *ret, int fd, struct ctl_head *ret_head)
{
	struct stat st;
	int r;

	r = (int)sys_call2(SYS_fstat, fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < CTL_BYTES)
		return -EINVAL;
	r = map_file(ret, fd, (uint64_t)st.st_size >= CTL_ALL_BYTES ? CTL_ALL_BYTES : CTL_BYTES);
	if (r < 0)
		return r;

	/* The state word is read in place (acquire) by whoever needs it; all else from this copy. */
	memcpy(ret_head, ret->head, sizeof(*ret_head));
	__asm__ volatile("" ::: "memory"); /* what is checked is the copy, not a second read */
	r = 0;
	if (memcmp(ret_head->magic, CTL_MAGIC, sizeof(ret_head->magic)) != 0 ||
	    ret_head->version != CTL_VERSION)
		r = -EPROTO;
	else if (ret_head->size != CTL_BYTES || ret_head->slots != CTL_SLOTS ||
		 ret_head->files != CTL_FILES || ret_head->ring_size < LANE_RING_MIN ||
		 ret_head->ring_size > LANE_RING_MAX || ret_head->ring_size % LANE_ALIGN != 0)
		r = -EINVAL;
	/* Without images a file costs lane space, nothing else: what is odd here means none. */
	if (ret_head->images != CTL_IMAGES) {
		ret->images = NULL;
		ret->image_bytes = NULL;
	}
	ret_head->domain[sizeof(ret_head->domain) - 1] = '\0';
	ret_head->lane_path[sizeof(ret_head->lane_path) - 1] = '\0';
	if (r < 0)
		control_unmap(ret, false);
	return r;
}

void control_unmap(struct control *c, bool close_fd)
{
	if (c->head)
		(void)sys_call2(SYS_munmap, c->head, (long)c->bytes);
	if (close_fd && c->fd >= 0)
		(void)sys_call1(SYS_close, c->fd);
	*c = (struct control){ .fd = -1 };
}

struct ctl_cell control_head(const struct control *c)
{
	const struct ctl_hot *hot = c->hot;
	struct ctl_cell cell = { 0 };

	for (unsigned i = 0; i < HEAD_TRIES; i++) {
		/* Acquire: pairs with the publishing store of append; records below are visible. */
		uint32_t index = atomic_load_acquire(&hot->index);

		/* Acquire: pairs with the release stores into the cell. Had one of these loads seen
		 * a newer value, the index seen below would have moved. */
		cell.head = atomic_load_acquire(&hot->cell[index & 1].head);
		cell.chain = atomic_load_acquire(&hot->cell[index & 1].chain);
		if (atomic_load_relaxed(&hot->index) == index)
			break;
		cpu_relax();
	}
	return cell;
}

uint32_t control_files_end(const struct control *c)
{
	/* Relaxed: stored before the id that makes an entry (release), see the header. */
	uint32_t end = atomic_load_relaxed(&c->hot->files_end);

	return end == 0 || end > CTL_FILES ? CTL_FILES : end;
}

int control_find(const struct control *c, uint32_t handle_type, const void *handle,
		 uint32_t handle_bytes)
{
	uint32_t end = control_files_end(c);

	if (handle_bytes > CTL_HANDLE_MAX)
		return -1;
	for (uint32_t i = 0; i < end; i++) {
		const struct ctl_file *f = &c->files[i];

		/* Acquire: pairs with the daemon's store of id, the last of a registration. */
		if (atomic_load_acquire(&f->id) != 0 && f->handle_type == handle_type &&
		    f->handle_bytes == handle_bytes && memcmp(f->handle, handle, handle_bytes) == 0)
			return (int)i;
	}
	return -1;
}
