/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/*
 * What doctor knows of the machine: text files below a root, nothing else, so that a tree of files can stand for
 * any machine. Nothing is changed, no device is opened.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/process.h"
#include "daemon/config.h"

struct fact_mount {
	bool found;
	char point[256], type[32], source[128];
	char options
		[512]; /* of the mount and of the file system, with a comma before and behind each */
	unsigned major, minor;
};

struct facts {
	const char *root; /* "" or a folder */
	const struct config *config;
	struct fact_mount pool; /* that the pool's folder lies on */
	char disk[64];		/* its block device: pmem0p1; "": none */
	char whole[64];		/* the same without the partition: pmem0 */
	char nd[512];		/* /sys/block/WHOLE/device, where its namespace is */
	char nd_name
		[64]; /* pfn0.0 (fsdax), namespace0.0 (raw), btt0.0 (sector); "": no persistent memory */
	char region[512]; /* folder of its region */
	int daemon;	  /* its pid; 0: it does not run */
};

void facts_gather(struct facts *f, const char *root, const struct config *config);

/* First line of ROOT/PATH without its line break, into buf; false: not there. The format is the path's. */
bool facts_line(const struct facts *f, char *buf, size_t n, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The same as a number. */
bool facts_number(const struct facts *f, uint64_t *ret, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Last part of what the link leads to. */
bool facts_link(const struct facts *f, char *buf, size_t n, const char *path);

/* The mount that a path lies on, as init sees them. */
void facts_mount_of(const struct facts *f, const char *path, struct fact_mount *ret);
/* ",dax=always," and the like. */
bool fact_option(const struct fact_mount *m, const char *option);

/* True if a list of numbers as the kernel writes it ("0-3,8") holds n. */
bool fact_list_has(const char *list, unsigned n);
