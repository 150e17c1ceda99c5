/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What enable and disable share: files to be written or taken away. */

#include "client/ctl/advice.h"
#include "client/ctl/unit.h"

struct change {
	char path[UNIT_PATH_MAX]; /* without the root */
	char *text;		  /* owned; NULL: the file is taken away */
};

struct changes {
	struct change list[4];
	unsigned n;
};

void changes_add(struct changes *c, const char *path, char *text);
/* Durable on return, one file after the other, each replaced as a whole. 0, or an exit code (told). */
int changes_apply(const struct changes *c, const char *root);
void changes_free(struct changes *c);

/* Says what was done, or would be, with notes: text or JSON. */
void changes_print(const struct changes *c, const struct unit *u, struct json_object *notes,
		   bool dry, bool json);

/* systemd reads its files again; only without a root, and where systemd runs. 0, or an exit code (told). */
int changes_reload(const char *root);

/* The cluster's environment file with our two lines in it, or without them; owned by the caller. */
char *environment_with(const struct unit *u, const char *domain);
char *environment_without(const struct unit *u);
