/* Problems are formatted when they are added, so nothing needs to be kept but one text. The line below a problem is
 * found through the name of the file and the position; places that are no positions in a known file get none. Columns
 * count characters, and the mark is placed by the width of what is shown, in which a control byte may
 * take four columns. Everything from files is escaped. Only the first CT_MAX_PROBLEMS are shown, but all are
 * counted. */
#include "trainer/config/problems_impl.h"

#include <string.h>

#define MAX_NAME 4200 /* a path of any length */
#define MAX_SHOWN 100 /* bytes of a line that are shown */
#define WIDE 7        /* width of a line number, with the spaces before it */

void ct__problems_add_file(struct ct_problems *p, const char *name, const char *text)
{
	if (p->n_files == CT_MAX_PROBLEM_FILES)
		return;
	p->files[p->n_files].name = name;
	p->files[p->n_files++].text = text;
}

/* Returns the text of the file, or NULL if the place is not a position in a known file. */
static const char *text_at(const struct ct_problems *p, const struct ct_place *at)
{
	for (size_t i = 0; i < p->n_files && at->line > 0; i++) {
		if (strcmp(at->name, p->files[i].name) == 0)
			return p->files[i].text;
	}
	return NULL;
}

/* Appends the line, and a mark below the word at this column, which counts characters. */
static void add_excerpt(struct ct_str *out, const char *text, int line, int column)
{
	size_t len, at = 0, width = 0, word;

	for (int i = 1; i < line && text; i++) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	len = text ? strcspn(text, "\r\n") : 0;
	/* The place is after the end of the line if something is missing there. */
	for (int i = 1; i < column && at < len; i++) {
		char shown[5];

		at += ct_escape_next(text + at, len - at, shown);
		width += shown[0] == '\\' && shown[1] ? strlen(shown) : 1;
	}
	if (len == 0 || strspn(text, " ") >= len || at > MAX_SHOWN)
		return;
	word = strcspn(text + at, " :,]}\r\n");
	if (word > len - at)
		word = len - at;
	ct_str_addf(out, "\n%*d | ", WIDE, line);
	ct_str_add_escaped(out, text, len, MAX_SHOWN);
	ct_str_addf(out, "\n%*s | %*s^", WIDE, "", (int)width, "");
	for (size_t i = 1; i < word && at + i < MAX_SHOWN; i++) {
		if (((unsigned char)text[at + i] & 0xC0) != 0x80)
			ct_str_add(out, "^");
	}
}

/* Starts a problem. Returns false if it is only counted. */
static bool begin(struct ct_problems *p, const struct ct_place *at)
{
	if (++p->n > CT_MAX_PROBLEMS)
		return false;
	if (p->text.len > 0)
		ct_str_add(&p->text, "\n");
	ct_str_add_escaped(&p->text, at->name, strlen(at->name), MAX_NAME);
	if (at->line > 0)
		ct_str_addf(&p->text, ":%d:%d", at->line, at->column);
	ct_str_add(&p->text, ": error: ");
	return true;
}

void ct__problems_add(struct ct_problems *p, const struct ct_place *at, const char *fmt, ...)
{
	const char *text;
	va_list ap;

	if (!begin(p, at))
		return;
	va_start(ap, fmt);
	ct_str_addv(&p->text, fmt, ap);
	va_end(ap);
	text = text_at(p, at);
	if (text)
		add_excerpt(&p->text, text, at->line, at->column);
}

void ct__problems_add_whole(struct ct_problems *p, const char *file, const char *text)
{
	const struct ct_place at = {.name = file, .line = 1, .column = 1};

	if (begin(p, &at))
		ct_str_add(&p->text, text);
}

enum ct_status ct__problems_status(const struct ct_problems *p)
{
	if (p->n == 0)
		return CT_OK;
	CT_TRY(ct_str_status(&p->text));
	if (p->n == 1)
		CT_FAIL(CT_CONFIG, "%s", ct_str_text(&p->text));
	else if (p->n <= CT_MAX_PROBLEMS)
		CT_FAIL(CT_CONFIG, "%s\n%zu mistakes", ct_str_text(&p->text), p->n);
	else
		CT_FAIL(CT_CONFIG, "%s\nand %zu more problems; %zu mistakes in all", ct_str_text(&p->text),
			p->n - CT_MAX_PROBLEMS, p->n);
	return ct_error_because(CT_REASON_PROBLEMS);
}

void ct__problems_release(struct ct_problems *p)
{
	ct_str_release(&p->text);
	p->n = p->n_files = 0;
}
