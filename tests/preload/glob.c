/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glob_match against fnmatch in the C locale: fixed pairs, then random ones over a small alphabet. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/preload/config.h"

static const char *const patterns[] = {
	"*",
	"*/ib_logfile[0-9]*",
	"*/ib_logfile0",
	"?",
	"[!a]*",
	"[^a]*",
	"[]x]y",

	"[",
	"a\\*",
	"**a**",
	"*a*b*c",
	"/data/*/b?",
	"[a-c]x",
	"\\[a",
	"",
	"*.[0-9][0-9]",
	"[a\\]]b",
};
static const char *const texts[] = {
	"",
	"a",
	"b",
	"/data/x/b1",
	"/var/lib/mysql/ib_logfile0",
	"/x/ib_logfile101",
	"]y",
	"xy",
	"[a",
	"a*",
	"[",

	"aXbYc",
	"abcabc",
	"bx",
	".hidden",
	"bin.00",
	"]b",
};

static int compare(const char *pattern, const char *text)
{
	bool ours = glob_match(pattern, text);
	bool libc = fnmatch(pattern, text, 0) == 0;

	if (ours == libc)
		return 0;
	printf("pattern '%s' text '%s': ours %d, fnmatch %d\n", pattern, text, ours, libc);
	return 1;
}

static void fill(char *s, const char *alphabet, unsigned n, unsigned *seed)
{
	unsigned length = (unsigned)rand_r(seed) % n;

	for (unsigned i = 0; i < length; i++)
		s[i] = alphabet[(unsigned)rand_r(seed) % 7];
	s[length] = '\0';
}

int main(void)
{
	unsigned seed = 1;
	int bad = 0;

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		for (size_t j = 0; j < sizeof(texts) / sizeof(texts[0]); j++)
			bad += compare(patterns[i], texts[j]);
	for (int i = 0; i < 300000 && bad < 20; i++) {
		char pattern[12], text[12];

		/* no brackets here: what an unfinished one means is nobody's standard */
		fill(pattern, "ab/*?*.", sizeof(pattern), &seed);
		fill(text, "ab/.abc", sizeof(text), &seed);
		bad += compare(pattern, text);
	}
	return bad != 0;
}
