/* For tests of pages that are wrapped. */
#ifndef CT_TESTS_TRAINER_PAGES_H
#define CT_TESTS_TRAINER_PAGES_H

#include <stdbool.h>
#include <string.h>

/* Returns true if the text contains the words, in whatever lines. */
static inline bool has_words(const char *text, const char *words)
{
	for (; *text; text++) {
		const char *t = text, *w = words;

		while (*w && (*t == *w || (*w == ' ' && *t == '\n'))) {
			t += *t == '\n' ? strspn(t, "\n ") : 1;
			w++;
		}
		if (!*w)
			return true;
	}
	return false;
}

/* Returns the first line of more than 80 columns, or "". */
static inline const char *too_wide(const char *text)
{
	while (*text && strcspn(text, "\n") <= 80) {
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return text;
}

#endif
