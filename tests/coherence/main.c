/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 *	coherence make DIR SHARED SEED
 *	coherence write DIR SHARED SEED THREADS		under the preload library
 *	coherence read DIR SHARED SEED THREADS		without it
 *	coherence check DIR SHARED
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared.h"

struct shared *sh;
const char *dir;

/* Files of full length, so that a mapping has pages; the counters' locks. */
static int make(uint64_t seed)
{
	pthread_mutexattr_t attr;

	sh->seed = seed;
	sh->appenders = 1;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	for (uint32_t i = 0; i < FILES; i++) {
		char path[1024];
		int fd;

		for (uint32_t k = 0; k < REGIONS; k++)
			pthread_mutex_init(&sh->region[i][k], &attr);
		file_path(path, "log.", i);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || ftruncate(fd, FILE_BYTES) < 0 || close(fd) < 0)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int fd = argc > 3 ? open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
	uint64_t seed = argc > 4 ? strtoul(argv[4], NULL, 0) : 0;
	uint32_t threads = argc > 5 ? (uint32_t)atoi(argv[5]) : 0;

	if (fd < 0 || ftruncate(fd, sizeof(*sh)) < 0)
		return 64;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (sh == MAP_FAILED)
		return 64;
	dir = argv[2];
	if (strcmp(argv[1], "make") == 0)
		return make(seed);
	if (strcmp(argv[1], "write") == 0)
		return writers(seed, threads);
	if (strcmp(argv[1], "read") == 0)
		return readers(seed, threads);
	if (strcmp(argv[1], "check") == 0)
		return everything();
	return 64;
}
