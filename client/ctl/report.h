/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once
#include <stdbool.h>
#include <stdio.h>

/* A report of recovery (recover.h), as it is (json) or for people. */
void report_print(FILE *out, const char *document, bool json);
