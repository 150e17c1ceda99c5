/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/ctl/unit_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/overflow.h"

#define VALUE_MAX 8192

/* One logical line into buf; returns what comes after it. */
static const char *next_line(const char *p, char *buf, size_t n)
{
	bool goes_on = true;
	size_t at = 0;

	while (goes_on && *p) {
		const char *begin = p + strspn(p, " \t");
		size_t length = strcspn(p, "\n"), take;

		/* a comment between continued lines is left out, and ends nothing */
		if (at == 0 || (*begin != '#' && *begin != ';')) {
			goes_on = length > 0 && p[length - 1] == '\\';
			take = min_of(length - goes_on, n - 2 - at);
			memcpy(buf + at, p, take);
			at += take;
			if (goes_on)
				buf[at++] = ' ';
		}
		at = min_of(at, n - 2);
		p += length;
		p += *p == '\n';
	}
	buf[at] = '\0';
	return p;
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\r");
	n = strlen(s);
	while (n > 0 && strchr(" \t\r", s[n - 1]))
		s[--n] = '\0';
	return s;
}

void unit_file_parse(const char *text,
		     void (*each)(void *arg, const char *section, const char *key,
				  const char *value),
		     void *arg)
{
	cleanup_free char *line = malloc(VALUE_MAX);
	char section[64] = "";

	while (line && *text) {
		char *s, *equals;

		text = next_line(text, line, VALUE_MAX);
		s = trim(line);
		if (*s == '\0' || *s == '#' || *s == ';')
			continue;
		if (*s == '[') {
			(void)snprintf(section, sizeof(section), "%.*s", (int)strcspn(s + 1, "]"),
				       s + 1);
			continue;
		}
		equals = strchr(s, '=');
		if (!equals)
			continue;
		*equals = '\0';
		each(arg, section, trim(s), trim(equals + 1));
	}
}

/* A word ends at a blank outside quotes. What a quote holds is one word, and then its words once more: the
 * command of `sh -c "..."`. */
void unit_file_words(const char *value, bool inside, void (*each)(void *arg, const char *word),
		     void *arg)
{
	cleanup_free char *word = malloc(VALUE_MAX);
	size_t at = 0;
	char quote = '\0';
	bool blanks = false;

	if (!word)
		return;
	for (const char *p = value;; p++) {
		bool end = *p == '\0' || (!quote && strchr(" \t", *p));

		if (!end) {
			if (quote ? *p == quote : *p == '"' || *p == '\'') {
				quote = quote ? '\0' : *p;
			} else if (at < VALUE_MAX - 1) {
				blanks |= *p == ' ';
				word[at++] = *p;
			}
			continue;
		}
		word[at] = '\0';
		if (at > 0)
			each(arg, word);
		if (inside && blanks) {
			char *rest = NULL;

			for (char *w = strtok_r(word, " \t`;()'\"", &rest); w;
			     w = strtok_r(NULL, " \t`;()'\"", &rest))
				each(arg, w);
		}
		at = 0;
		blanks = false;
		if (*p == '\0')
			break;
	}
}
