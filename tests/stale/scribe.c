/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The smallest database: makes the calls that come on stdin, one a line, and answers each with the
 * result or the negative errno. It lives until stdin ends, so that its records stay live.
 *
 *	o PATH			  open for reading and writing, made if missing
 *	w FD OFFSET LENGTH CHAR	  that many times CHAR, then fdatasync
 *	u PATH			  unlink, then fsync of the directory
 *	l PATH NEW		  link
 *	c FD			  close
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long result(long r)
{
	return r < 0 ? -errno : r;
}

static long write_synced(int fd, long offset, size_t n, char c)
{
	char *buffer = malloc(n);
	long r;

	if (!buffer)
		return -ENOMEM;
	memset(buffer, c, n);
	r = result(pwrite(fd, buffer, n, offset));
	free(buffer);
	if (r == (long)n && fdatasync(fd) < 0)
		r = -errno;
	return r;
}

static long unlink_synced(char *path)
{
	long r = result(unlink(path));
	int fd;

	if (r < 0)
		return r;
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = result(fsync(fd));
	close(fd);
	return r;
}

static long order(char *line)
{
	char a[512], b[512], c;
	long offset, n;
	int fd;

	switch (line[0]) {
	case 'o':
		if (sscanf(line, "o %511s", a) == 1)
			return result(open(a, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
		break;
	case 'w':
		if (sscanf(line, "w %d %ld %ld %c", &fd, &offset, &n, &c) == 4)
			return write_synced(fd, offset, (size_t)n, c);
		break;
	case 'u':
		if (sscanf(line, "u %511s", a) == 1)
			return unlink_synced(a);
		break;
	case 'l':
		if (sscanf(line, "l %511s %511s", a, b) == 2)
			return result(link(a, b));
		break;
	case 'c':
		if (sscanf(line, "c %d", &fd) == 1)
			return result(close(fd));
		break;
	}
	return -EINVAL;
}

int main(void)
{
	char line[1200];

	while (fgets(line, sizeof(line), stdin)) {
		printf("%ld\n", order(line));
		fflush(stdout);
	}
	return 0;
}
