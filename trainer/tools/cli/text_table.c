/* Cells are stored in one array, row by row, and formatted when the table is complete, because a column is as wide as
 * its widest cell. Widths are columns of the terminal, so UTF-8 and colors count correctly. A column is shown only if a
 * row other than the header has something in it. Spaces at the end of a line are removed; a cut never leaves a color
 * on. */
#include "trainer/tools/cli/text_table.h"

#include <stdarg.h>
#include <string.h>

#include "base/process/terminal.h"

#define GAP 2 /* spaces between columns */
#define BOLD "\033[1m"
#define PLAIN "\033[0m"
#define MORE "..."
#define MAX_COLUMNS 16

void ct_text_table_add(struct ct_text_table *t, const char *color, const char *fmt, ...)
{
	struct ct_str raw = {0}, text = {0};
	struct ct_text_cell *cells = t->failed ? NULL : ct_array_grow(t->cells, t->n, &t->cap, sizeof(*cells));
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&raw, fmt, ap);
	va_end(ap);
	ct_str_add_escaped(&text, ct_str_text(&raw), raw.len, SIZE_MAX);
	ct_str_add(&text, ""); /* an empty string is not NULL */
	t->failed |= !cells || raw.failed || text.failed;
	ct_str_release(&raw);
	if (cells)
		t->cells = cells;
	if (t->failed) {
		ct_str_release(&text);
		return;
	}
	t->cells[t->n++] = (struct ct_text_cell){.text = text.s, .color = color};
}

static void add_spaces(struct ct_str *out, size_t n)
{
	ct_str_addf(out, "%*s", (int)n, "");
}

static void add_cell(const struct ct_text_table *t, size_t i, size_t width, bool colors, bool last, struct ct_str *out)
{
	const struct ct_text_cell *c = &t->cells[i];
	const char *text = c->text ? c->text : "", *color = i < t->n_columns ? BOLD : c->color;
	const size_t pad = width - ct_text_columns(text), column = i % t->n_columns;
	const bool right = t->right >> column & 1;

	if (right)
		add_spaces(out, pad);
	ct_str_addf(out, "%s%s%s", colors && color ? color : "", text, colors && color ? PLAIN : "");
	if (!right && !last)
		add_spaces(out, pad);
}

static void add_line(const char *line, int width, bool colors, struct ct_str *out)
{
	if (width > (int)strlen(MORE) && ct_text_columns(line) > (size_t)width) {
		ct_str_add_bytes(out, line, ct_text_cut(line, (size_t)width - strlen(MORE)));
		ct_str_addf(out, "%s%s\n", colors ? PLAIN : "", MORE);
	} else {
		ct_str_addf(out, "%s\n", line);
	}
}

enum ct_status ct_text_table_format(const struct ct_text_table *t, int width, bool colors, struct ct_str *out)
{
	const size_t rows = t->n_columns > 0 ? t->n / t->n_columns : 0;
	size_t widths[MAX_COLUMNS] = {0}, last = 0;
	struct ct_str line = {0};

	CT_ASSERT(t->n_columns <= MAX_COLUMNS);
	if (t->failed)
		return CT_NOMEM;
	for (size_t i = t->n_columns; i < rows * t->n_columns; i++) {
		size_t n = ct_text_columns(t->cells[i].text ? t->cells[i].text : "");

		widths[i % t->n_columns] = n > widths[i % t->n_columns] ? n : widths[i % t->n_columns];
	}
	for (size_t k = 0; k < t->n_columns; k++) {
		size_t n = rows > 0 && t->cells[k].text ? ct_text_columns(t->cells[k].text) : 0;

		if (widths[k] > 0) {
			widths[k] = n > widths[k] ? n : widths[k];
			last = k;
		}
	}
	for (size_t r = 0; r < rows; r++) {
		ct_str_clear(&line);
		for (size_t k = 0; k < t->n_columns; k++) {
			if (widths[k] == 0)
				continue;
			if (line.len > 0)
				add_spaces(&line, GAP);
			add_cell(t, r * t->n_columns + k, widths[k], colors, k == last, &line);
		}
		while (line.len > 0 && line.s[line.len - 1] == ' ')
			line.s[--line.len] = '\0';
		add_line(ct_str_text(&line), width, colors, out);
	}
	out->failed |= line.failed;
	ct_str_release(&line);
	return ct_str_status(out);
}

void ct_text_table_release(struct ct_text_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		ct_free(t->cells[i].text);
	ct_free(t->cells);
	*t = (struct ct_text_table){0};
}
