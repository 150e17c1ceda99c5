/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
#include <stdbool.h>
#include <stdio.h>

/* The document of `status --json` for people. Text from clients (paths) is made printable. False: the
 * document is no JSON object. A field that is missing is left out, never a failure. */
bool status_text_print(FILE *out, const char *document);
