/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* Calls of one family, for another one: the library's own, whatever stands before it in the link order. */

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

/* local_NAME is made by export.h beside each exported NAME. */
#define LOCAL(name) extern __typeof__(name) local_##name __attribute__((visibility("hidden")));

LOCAL(open)
LOCAL(openat)
LOCAL(creat)
LOCAL(open_by_handle_at)
LOCAL(close)
LOCAL(close_range)
LOCAL(dup)
LOCAL(dup2)
LOCAL(dup3)
LOCAL(fcntl)
LOCAL(read)
LOCAL(readv)
LOCAL(lseek)
LOCAL(preadv2)
LOCAL(write)
LOCAL(writev)
LOCAL(pwrite)
LOCAL(pwritev)
LOCAL(pwritev2)
LOCAL(fsync)
LOCAL(fdatasync)
LOCAL(sync_file_range)
LOCAL(ftruncate)
LOCAL(truncate)
LOCAL(fallocate)
LOCAL(copy_file_range)
LOCAL(splice)
LOCAL(sendfile)
LOCAL(ioctl)
LOCAL(rename)
LOCAL(renameat)
LOCAL(renameat2)
LOCAL(link)
LOCAL(linkat)
LOCAL(unlink)
LOCAL(unlinkat)
LOCAL(fchmod)
LOCAL(chmod)
LOCAL(fchmodat)
LOCAL(fchown)
LOCAL(chown)
LOCAL(lchown)
LOCAL(fchownat)
LOCAL(utime)
LOCAL(utimes)
LOCAL(futimesat)
LOCAL(utimensat)
LOCAL(futimens)
LOCAL(setxattr)
LOCAL(lsetxattr)
LOCAL(fsetxattr)
LOCAL(removexattr)
LOCAL(lremovexattr)
LOCAL(fremovexattr)
LOCAL(mmap)
LOCAL(mprotect)
LOCAL(pkey_mprotect)
LOCAL(sendmsg)
LOCAL(sendmmsg)

/* Of libraries that are not libc. */
extern int local_io_submit(void *context, long n, struct iocb **requests)
	__attribute__((visibility("hidden")));
