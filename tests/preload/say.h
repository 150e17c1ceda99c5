/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * Cases that run twice, without the library and with it, and must print the same. A case prints what each
 * call returned; numbers that differ from run to run (descriptors, addresses) are not printed.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prints the call, its result and, where it failed, the error's name; where it did not, that errno was
 * touched all the same. Result: what it returned. */
#define SAY(call)                                                      \
	({                                                             \
		errno = UNTOUCHED;                                     \
		long said_ = (long)(call);                             \
		int errno_ = errno;                                    \
		printf("%s = %ld %s\n", #call, said_,                  \
		       said_ == -1	     ? strerrorname_np(errno_) \
		       : errno_ != UNTOUCHED ? "errno was set"         \
					     : "");                    \
		said_;                                                 \
	})
#define UNTOUCHED 77777

/* As SAY, for calls that give a descriptor: prints only whether they did. */
#define SAY_FD(call)                                                                  \
	({                                                                            \
		errno = 0;                                                            \
		int fd_ = (call);                                                     \
		printf("%s: %s\n", #call, fd_ < 0 ? strerrorname_np(errno) : "open"); \
		fd_;                                                                  \
	})

/* Ends the case where the test itself cannot go on. */
#define MUST(condition)                                                           \
	do {                                                                      \
		if (!(condition)) {                                               \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
			       strerrorname_np(errno));                           \
			exit(2);                                                  \
		}                                                                 \
	} while (0)

/* Size and checksum of a file by name. */
void say_file(const char *path);

struct say_case {
	const char *name;
	void (*run)(void);
};
extern const struct say_case calls_cases[], past_cases[], names_cases[], process_cases[];
extern const struct say_case changes_cases[], rings_cases[];
