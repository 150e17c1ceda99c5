/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the daemon cannot know: processes that write under a rule and have no session with it. */

#include <json-c/json.h>

/*
 * Adds to the document of `status`, from /proc:
 *   unattended     [{pid, program, path, reason}]: a file under a rule that a process without a session has
 *                  open for writing; makes `exit` 1
 *   old_library    [{pid, program}]: sessions whose library was replaced since they started
 *   all_processes  whether all of them could be looked at (root)
 *   safe_to_move   (and in each domain) nothing of it lies outside its files, no session, no mark: disks and
 *                  data directories may be taken away, copied, restored
 * socket: the daemon's; control/ lies in its folder, as the library takes it.
 */
void notice_add(struct json_object *document, const char *socket);
