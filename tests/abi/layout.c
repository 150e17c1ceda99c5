/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The formats as they are laid out in memory, against layout.txt: a change that nobody meant shows here. Where
 * one is meant, `abi-layout --print` writes the new text; whatever is older must still be served
 * or refused (include/abi).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "abi/control.h"
#include "abi/lane.h"
#include "abi/log.h"
#include "abi/mark.h"
#include "abi/pool.h"
#include "abi/wire.h"

static FILE *frozen; /* NULL: print */
static unsigned lines, wrong;
static size_t end; /* of the field before, in its struct */

static __attribute__((format(printf, 1, 2))) void line(const char *format, ...)
{
	char is[128], was[128] = "";
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(is, sizeof(is), format, ap);
	va_end(ap);
	lines++;
	if (!frozen) {
		puts(is);
		return;
	}
	if (!fgets(was, sizeof(was), frozen))
		was[0] = '\0';
	was[strcspn(was, "\n")] = '\0';
	if (strcmp(is, was) != 0 && wrong++ < 5)
		printf("line %u: was \"%s\", is \"%s\"\n", lines, was, is);
}

/* Fields follow each other: one that is not listed would be a hole. */
static void field(const char *what, size_t offset, size_t bytes)
{
	if (offset == 0)
		end = 0;
	if (offset != end && wrong++ < 5)
		printf("%s: at %zu, the field before ends at %zu\n", what, offset, end);
	end = offset + bytes;
	line("%s %zu %zu", what, offset, bytes);
}

static void whole(const char *what, size_t bytes)
{
	if (bytes != end && wrong++ < 5)
		printf("struct %s: %zu bytes, its last field ends at %zu\n", what, bytes, end);
	line("struct %s %zu", what, bytes);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 64;
	if (strcmp(argv[1], "--print") != 0) {
		frozen = fopen(argv[1], "r");
		if (!frozen)
			return 1;
	}
#define FIELD(s, f)	       field(#s "." #f, offsetof(struct s, f), sizeof(((struct s *)0)->f));
#define STRUCT(s)	       whole(#s, sizeof(struct s));
#define NUMBER(n)	       line(#n " %" PRIu64, (uint64_t)(n));
#define TEXT(t)		       line(#t " %s", t);
#define MESSAGE(n, i, q, r, a) line("message " #n " %d %zu %zu %d", i, sizeof(q), sizeof(r), a);
#include "abi/messages.def"
#include "layout.def"
	if (!frozen)
		return 0;
	if (fgetc(frozen) != EOF) {
		printf("layout.txt has more lines than there are fields\n");
		wrong++;
	}
	fclose(frozen);
	printf("abi-layout: lines %u changed %u\n", lines, wrong);
	return wrong ? 1 : 0;
}
