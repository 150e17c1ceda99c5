/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* A rule descriptor in the hands of another program or process, which writes without a record. */

/*
 * To be called before fd gets there: takes its file into bypass for good, and gives the description the
 * sync flags that it was opened with and that live in the library only. Nothing for a descriptor that is
 * none of ours. 0, or -1 with errno: then the descriptor must stay here. Any thread.
 */
int passed_on(int fd);

/*
 * The same where another descriptor of the file, one that is none of ours, writes it already, or a mapping:
 * fd keeps its flags. 0, or -1 with errno.
 */
int passed_by(int fd);

/* FD_CLOEXEC of a rule descriptor, as fcntl sets it (dup.c). 0, or a negative errno. */
long close_on_exec(int fd, int on);
