/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
/* What the product made of a damaged scene, held against what it has promised. */

#include "tests/pool/scene.h"

enum verdict {
	HARMLESS, /* every acknowledged byte is in its file */
	NAMED,	  /* refused or quarantined with words, nothing changed */
	NEWEST, /* the newest record since the heartbeat taken for a torn one: the one exception */
	SILENT, /* an acknowledged record is gone and nobody says so */
	WRONG,	/* anything else: a wrong byte, no words, bytes changed by a refusal */
	VERDICTS,
};
extern const char *const verdict_names[VERDICTS];

/*
 * Opens the pool, recovers both domains, looks at the files; then everything once more, as after a crash
 * right behind it: the result must be the same. may_lose_newest: the fault is in the newest record and
 * no heartbeat has seen that. why (n bytes): the product's words, or what is wrong.
 */
enum verdict verdict_of(struct scene *s, bool may_lose_newest, char *why, size_t n);
