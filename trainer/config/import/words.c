/* Splits a command line into words, and quotes words. */
#include <string.h>

#include "trainer/config/import/import_impl.h"

#define MAX_WORDS 1000

struct reader {
	const char *s;
	struct ct_str word;
	bool any; /* the word has begun; it may be empty ('') */
};

static enum ct_status end_word(struct reader *r, struct ct_words *out)
{
	if (!r->any)
		return CT_OK;
	if (out->n == MAX_WORDS)
		return CT_FAIL(CT_USAGE, "the command has more than %d words", MAX_WORDS);
	CT_TRY(ct_str_status(&r->word));
	CT_TRY_GROW(out->all, out->n, out->cap);
	CT_TRY_ALLOC(out->all[out->n] = ct_strdup(ct_str_text(&r->word)));
	out->n++;
	ct_str_clear(&r->word);
	r->any = false;
	return CT_OK;
}

/* Adds a substitution up to the closing parenthesis or brace. */
static enum ct_status read_substitution(struct reader *r)
{
	const char *start = r->s;
	int depth = 0;

	do {
		if (*r->s == '\0')
			return CT_FAIL(CT_USAGE, "%.40s is not closed", start);
		if (*r->s == '(' || *r->s == '{')
			depth++;
		if (*r->s == ')' || *r->s == '}')
			depth--;
		r->s++;
	} while (depth > 0 || r->s == start + 1);
	ct_str_add_bytes(&r->word, start, (size_t)(r->s - start));
	return CT_OK;
}

static bool is_substitution(const char *s)
{
	return s[0] == '$' && (s[1] == '(' || s[1] == '{');
}

static enum ct_status read_quoted(struct reader *r)
{
	const char quote = *r->s++, *start = r->s;

	r->any = true;
	while (*r->s != quote) {
		if (*r->s == '\0')
			return CT_FAIL(CT_USAGE, "the quote in front of \"%.40s\" is not closed", start);
		if (quote == '"' && is_substitution(r->s)) {
			CT_TRY(read_substitution(r));
			continue;
		}
		if (quote == '"' && *r->s == '\\' && r->s[1] != '\0' && strchr("\"\\$`", r->s[1]))
			r->s++;
		ct_str_add_bytes(&r->word, r->s++, 1);
	}
	r->s++;
	return CT_OK;
}

/* Whether only spaces, comments and a final '&' follow. */
static bool is_end(const char *s)
{
	s += strspn(s, " \t\r\n;&");
	return *s == '\0' || *s == '#';
}

static enum ct_status read_words(struct reader *r, struct ct_words *out)
{
	while (*r->s != '\0') {
		if (r->s[0] == '\\' && r->s[1] == '\n') {
			r->s += 2;
		} else if (strchr(" \t\r", *r->s)) {
			CT_TRY(end_word(r, out));
			r->s++;
		} else if (*r->s == '#' && !r->any) {
			r->s += strcspn(r->s, "\n");
		} else if (strchr("\n;&|<>", *r->s)) {
			CT_TRY(end_word(r, out));
			if (out->n > 0 && !is_end(r->s)) {
				CT_FAIL(CT_USAGE, "\"%.40s\" is another command or a redirection", r->s);
				return ct_error_hint("pass one command at a time");
			}
			r->s++;
		} else if (*r->s == '\'' || *r->s == '"') {
			CT_TRY(read_quoted(r));
		} else {
			r->any = true;
			if (is_substitution(r->s)) {
				CT_TRY(read_substitution(r));
				continue;
			}
			if (*r->s == '\\' && r->s[1] != '\0')
				r->s++;
			ct_str_add_bytes(&r->word, r->s++, 1);
		}
	}
	return end_word(r, out);
}

enum ct_status ct__words_split(const char *line, struct ct_words *out)
{
	struct reader r = {.s = line};
	const enum ct_status st = read_words(&r, out);

	ct_str_release(&r.word);
	return st;
}

void ct__words_release(struct ct_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		ct_free(w->all[i]);
	ct_free(w->all);
	*w = (struct ct_words){0};
}

void ct__word_add(struct ct_str *out, const char *word)
{
	if (strchr(word, '$'))
		ct_str_addf(out, strpbrk(word, " \t\"'") && !strchr(word, '"') ? "\"%s\"" : "%s", word);
	else
		ct_str_add_shell(out, word);
}
