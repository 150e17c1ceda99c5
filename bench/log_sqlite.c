/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What many programs keep a log in: a table of SQLite, each record a transaction that is synced. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/bench.h"

static char path[512];
static sqlite3 *db;
static sqlite3_stmt *insert;

void sqlite_folder(const char *disk_folder)
{
	snprintf(path, sizeof(path), "%s/pmemlogd-bench.%d.db", disk_folder, getpid());
}

static void remove_files(void)
{
	char beside[sizeof(path) + 8];

	(void)unlink(path);
	snprintf(beside, sizeof(beside), "%s-wal", path);
	(void)unlink(beside);
	snprintf(beside, sizeof(beside), "%s-shm", path);
	(void)unlink(beside);
}

/* One writer at a time is all that it has. */
int sqlite_open(unsigned size, unsigned threads)
{
	(void)size;
	if (threads > 1)
		return -EINVAL;
	remove_files();
	if (sqlite3_open(path, &db) != SQLITE_OK ||
	    sqlite3_exec(db,
			 "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
			 "CREATE TABLE log(lsn INTEGER PRIMARY KEY, bytes BLOB);",
			 NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, "INSERT INTO log(bytes) VALUES(?)", -1, &insert, NULL) !=
		    SQLITE_OK) {
		sqlite_close();
		return failed("sqlite", EIO);
	}
	return 0;
}

void sqlite_once(unsigned thread, const void *bytes, unsigned size)
{
	(void)thread;
	if (sqlite3_bind_blob(insert, 1, bytes, (int)size, SQLITE_STATIC) != SQLITE_OK ||
	    sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert) != SQLITE_OK)
		die(sqlite3_errmsg(db), EIO);
}

void sqlite_close(void)
{
	(void)sqlite3_finalize(insert);
	(void)sqlite3_close(db);
	insert = NULL;
	db = NULL;
	remove_files();
}
