/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A database's systemd unit, as its files say; below a root, so that a tree can stand for a machine. */

#include <stdbool.h>
#include <stddef.h>

#define UNIT_NAME_MAX 256
#define UNIT_PATH_MAX 512

enum unit_kind {
	UNIT_OTHER,
	UNIT_MYSQL,
	UNIT_MARIADB,
	UNIT_POSTGRES,	 /* the server itself is started */
	UNIT_PG_CLUSTER, /* pg_ctlcluster: it clears the environment, and reads a file of its own */
};

struct unit {
	const char *root; /* "" or a folder */
	char name
		[UNIT_NAME_MAX]; /* with its suffix, an alias resolved: postgresql@15-main.service */
	char shape[UNIT_NAME_MAX];    /* of an instance: postgresql@.service; else the name */
	char instance[UNIT_NAME_MAX]; /* 15-main; else "" */
	char file[UNIT_PATH_MAX];     /* without the root */
	char program[UNIT_PATH_MAX];  /* the database's program file, or what starts it */
	char server[64];	      /* what the rules have to name: mysqld, mariadbd, postgres */
	char user[64];		      /* "": not said */
	char domain[64];	      /* PMEMLOGD_DOMAIN as it is set now; "": not set */
	char gated[128];	      /* USER/NAME of `pmemlogctl gate` in ExecStartPre; "": none */
	char preload
		[1024]; /* LD_PRELOAD of Environment= in the order of the files, ours left out */
	char preload_file
		[UNIT_PATH_MAX]; /* an EnvironmentFile= that sets LD_PRELOAD, and so overrules it */
	bool loads;		 /* LD_PRELOAD names our library */
	bool strict;		 /* ProtectSystem=strict */
	enum unit_kind kind;
	char dropin[UNIT_PATH_MAX];	 /* ours, without the root */
	char environment[UNIT_PATH_MAX]; /* PG_CLUSTER: the cluster's file, without the root */
};

/* Finds the unit and reads it with all drop-ins. 0, or an exit code (told). */
int unit_load(struct unit *u, const char *root, const char *word);

/* Calls each(arg, path, text) for every file that systemd or the database reads an environment from, whether
 * it is there or not being found out; path without the root. */
void unit_each_source(const struct unit *u,
		      void (*each)(void *arg, const char *path, const char *text), void *arg);

/* ---- text files below a root */

/* ROOT/PATH, whole, terminated; NULL: not there, or longer than 1 MiB. Owned by the caller. */
char *root_read(const char *root, const char *path);

/* True if a value of LD_PRELOAD names our library. */
bool preload_is_ours(const char *value);
/* Takes our library out of a value of LD_PRELOAD, in place. */
void preload_without_ours(char *value);

/* VALUE of "NAME=VALUE" or "NAME = 'VALUE'" in a file of assignments, the last one; false: none. */
bool assignment(const char *text, const char *name, char *ret, size_t n);
