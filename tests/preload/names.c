/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Calls on names, and metadata. */
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include "tests/preload/say.h"

static int log_file(const char *path, const char *text)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);

	MUST(fd >= 0);
	MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static void links_of(int fd)
{
	struct stat st;

	MUST(fstat(fd, &st) == 0);
	printf("%ld names, %ld bytes\n", (long)st.st_nlink, (long)st.st_size);
}

static void renames(void)
{
	int a = log_file("log.1", "first"), b = log_file("log.2", "second");
	int c = log_file("log.3", "third");

	SAY(rename("log.1", "log.2"));
	links_of(a);
	links_of(b);
	SAY(write(a, "+", 1));
	SAY(write(b, "+", 1));
	say_file("log.1");
	say_file("log.2");
	SAY(rename("log.2", "plain"));
	SAY(write(a, "+", 1));
	say_file("plain");
	SAY(rename("plain", "log.3"));
	links_of(c);
	say_file("log.3");
	SAY(rename("log.3", "log.3"));
	SAY(rename("none", "log.3"));
	SAY(rename("log.3", "none/log.3"));
	SAY(mkdir("folder", 0700));
	SAY(rename("log.3", "folder"));
	SAY(rename("log.3", "folder/log.3"));
	SAY(rename("folder", "other"));
	SAY(write(a, "+", 1));
	say_file("other/log.3");
	b = log_file("log.2", "again");
	SAY(renameat2(AT_FDCWD, "log.2", AT_FDCWD, "other/log.3", 1 /* NOREPLACE */));
	SAY(renameat2(AT_FDCWD, "log.2", AT_FDCWD, "other/log.3", 2 /* EXCHANGE */));
	SAY(write(b, "+", 1));
	say_file("log.2");
	say_file("other/log.3");
}

static void unlinks(void)
{
	int fd = log_file("log.1", "gone");
	int again;

	SAY(unlink("log.1"));
	links_of(fd);
	SAY(write(fd, "still", 5));
	SAY(fdatasync(fd));
	links_of(fd);
	/* a new file of that name, often with the same inode number */
	again = log_file("log.1", "new");
	SAY(write(fd, "old", 3));
	SAY(close(fd));
	SAY(write(again, "!", 1));
	say_file("log.1");
	SAY(unlink("log.1"));
	SAY(unlink("log.1"));
	SAY(close(again));
	again = log_file("log.1", "third");
	say_file("log.1");
	SAY(remove("log.1"));
	SAY(remove("log.1"));
	SAY(mkdir("folder", 0700));
	SAY(unlink("folder"));
	SAY(unlinkat(AT_FDCWD, "folder", AT_REMOVEDIR));
	SAY(mkdir("folder", 0700));
	MUST(remove("folder") == 0); /* libc leaves the first errno behind */
}

static void hard_links(void)
{
	int fd = log_file("log.1", "one");

	SAY(link("log.1", "log.2"));
	SAY(linkat(AT_FDCWD, "log.1", AT_FDCWD, "log.2", 0));
	SAY(link("none", "log.3"));
	links_of(fd);
	SAY(write(fd, "two", 3));
	SAY(unlink("log.1"));
	links_of(fd);
	SAY(write(fd, "three", 5));
	say_file("log.2");
	SAY(rename("log.2", "log.1"));
	SAY(unlink("log.1"));
	links_of(fd);
}

static void metadata(void)
{
	struct timeval times[2] = { { 1000, 500000 }, { 2000, 0 } };
	struct timeval wrong[2] = { { 1000, 1000000 }, { 2000, 0 } };
	struct timespec fine[2] = { { 3000, 1 }, { 4000, 2 } };
	struct utimbuf coarse = { 5000, 6000 };
	int fd = log_file("log.1", "bytes");
	int reader = open("log.1", O_RDONLY | O_CLOEXEC);
	struct stat st;
	char value[16] = { 0 };

#define SAY_META()                                                            \
	do {                                                                  \
		MUST(fstat(fd, &st) == 0);                                    \
		printf("%o %ld.%09ld\n", st.st_mode, (long)st.st_mtim.tv_sec, \
		       (long)st.st_mtim.tv_nsec);                             \
	} while (0)

	SAY(futimens(fd, fine));
	SAY_META();
	SAY(fchmod(fd, 0600));
	SAY(fchmod(reader, 0604));
	SAY_META();
	SAY(chmod("log.1", 0644));
	SAY(fchmodat(AT_FDCWD, "log.1", 0600, 0));
	SAY(fchown(fd, getuid(), getgid()));
	SAY(chown("log.1", (uid_t)-1, (gid_t)-1));
	SAY(lchown("log.1", (uid_t)-1, (gid_t)-1));
	SAY(fchownat(AT_FDCWD, "log.1", (uid_t)-1, (gid_t)-1, AT_SYMLINK_NOFOLLOW));
	SAY_META();
	SAY(utimes("log.1", times));
	SAY_META();
	SAY(utimes("log.1", wrong));
	SAY(futimes(fd, times));
	SAY(lutimes("log.1", times));
	SAY(futimesat(AT_FDCWD, "log.1", times));
	SAY(utime("log.1", &coarse));
	SAY_META();
	SAY(utimensat(AT_FDCWD, "log.1", fine, 0));
	SAY_META();
	SAY(utimensat(AT_FDCWD, "none", fine, 0));
	SAY(futimens(-1, fine));
	SAY(futimens(742, fine));
	SAY(fsetxattr(fd, "user.test", "value", 5, 0));
	SAY(setxattr("log.1", "user.test", "other", 5, 1 /* XATTR_CREATE */));
	SAY(lsetxattr("log.1", "user.more", "more", 4, 0));
	SAY(fgetxattr(fd, "user.test", value, sizeof(value)));
	printf("%s\n", value);
	SAY(removexattr("log.1", "user.test"));
	SAY(fremovexattr(fd, "user.test"));
	SAY(lremovexattr("log.1", "user.more"));
	SAY(fchmod(742, 0600));
	SAY(chmod("none", 0600));
	SAY(write(fd, "+", 1));
	SAY(fsync(fd));
	say_file("log.1");
}

const struct say_case names_cases[] = {
	{ "renames", renames },
	{ "unlinks", unlinks },
	{ "hard-links", hard_links },
	{ "metadata", metadata },
	{ 0 },
};
