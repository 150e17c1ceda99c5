/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fnmatch may allocate and asks the locale; a path must match in a signal handler, too. */
#include "client/preload/config.h"

/* One bracket expression at *pattern ('['). Sets *pattern after it and *ret_hit; false if it has no
 * end: then '[' stands for itself. */
static bool bracket(const char **pattern, char c, bool *ret_hit)
{
	const unsigned char *p = (const unsigned char *)*pattern + 1;
	unsigned char text = (unsigned char)c;
	bool negate = *p == '!' || *p == '^';
	bool hit = false;

	if (negate)
		p++;
	/* A ']' that comes first is a member. */
	for (bool first = true; *p && (first || *p != ']'); first = false) {
		unsigned char low, up;

		if (*p == '\\' && p[1])
			p++;
		low = *p++;
		up = low;
		if (*p == '-' && p[1] && p[1] != ']') {
			p++;
			if (*p == '\\' && p[1])
				p++;
			up = *p++;
		}
		if (low <= text && text <= up)
			hit = true;
	}
	if (*p != ']')
		return false;
	*pattern = (const char *)p + 1;
	*ret_hit = hit != negate;
	return true;
}

/* One pattern element against one byte; moves *pattern on. */
static bool one(const char **pattern, char c)
{
	bool hit;

	switch (**pattern) {
	case '?':
		(*pattern)++;
		return true;
	case '[':
		if (bracket(pattern, c, &hit))
			return hit;
		break;
	case '\\':
		if ((*pattern)[1])
			(*pattern)++;
		break;
	default:
		break;
	}
	return *(*pattern)++ == c;
}

bool glob_match(const char *pattern, const char *text)
{
	const char *star = NULL; /* pattern after the last '*' */
	const char *from = NULL; /* text where it was tried last */

	while (*text) {
		const char *p = pattern;

		if (*pattern == '*') {
			star = ++pattern;
			from = text;
		} else if (*pattern && one(&p, *text)) {
			pattern = p;
			text++;
		} else if (star) {
			/* Only the last star needs to be lengthened: earlier ones have matched. */
			pattern = star;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}
