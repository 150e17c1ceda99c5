/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* same FOLDER CASE: runs one case in FOLDER; `same list` names them. */
#include "tests/preload/say.h"

void say_file(const char *path)
{
	uint64_t sum = 14695981039346656037u; /* FNV-1a */
	uint8_t buffer[2048];
	long size = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		printf("%s: %s\n", path, strerrorname_np(errno));
		return;
	}
	while ((n = pread(fd, buffer, sizeof(buffer), size)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum = (sum ^ buffer[i]) * 1099511628211u;
		size += n;
	}
	close(fd);
	printf("%s: %ld bytes, sum %016lx\n", path, size, (unsigned long)sum);
}

static const struct say_case *const lists[] = { calls_cases, past_cases, names_cases,
						process_cases };

int main(int argc, char **argv)
{
	bool list = argc == 2 && strcmp(argv[1], "list") == 0;

	if (!list && argc != 3) {
		fprintf(stderr, "usage: same FOLDER CASE | same list\n");
		return 64;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!list)
		MUST(chdir(argv[1]) == 0);
	for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
		for (const struct say_case *c = lists[l]; c->name; c++) {
			if (list) {
				puts(c->name);
			} else if (strcmp(c->name, argv[2]) == 0) {
				c->run();
				return 0;
			}
		}
	}
	return list ? 0 : 64;
}
