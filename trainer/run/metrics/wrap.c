/* A line is broken at a gap between words, and only if it already has a word after its indent, so a long word such as
 * a path is never cut. Columns are counted, not bytes: continuation bytes of UTF-8 and color sequences (ESC [ ... m)
 * take up none. The text of a line keeps its own gaps, so tables stay aligned. */
#include "trainer/run/metrics/wrap.h"

#include <string.h>

#include "base/process/terminal.h"

#define DEFAULT_INDENT 2
#define MAX_INDENT 18

/* Returns the column after the first gap of two or more spaces that follows a word, if it is not too far to the right.
 */
static size_t indent_of(const char *line, size_t len)
{
	size_t at = strspn(line, " ");

	for (; at + 1 < len; at++) {
		if (line[at] != ' ' || line[at + 1] != ' ')
			continue;
		at += strspn(line + at, " ");
		return at < len && at <= MAX_INDENT ? at : DEFAULT_INDENT;
	}
	return DEFAULT_INDENT;
}

static size_t columns_of(const char *p, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (p[i] == '\033') /* a color: ESC [ ... m */
			while (i < len && p[i] != 'm')
				i++;
		else
			n += ((unsigned char)p[i] & 0xC0) != 0x80;
	}
	return n;
}

static void wrap_line(const char *line, size_t len, size_t width, struct ct_str *out)
{
	size_t indent = indent_of(line, len), at = 0, column = 0;

	if (indent + DEFAULT_INDENT > width / 2)
		indent = DEFAULT_INDENT;
	while (at < len) {
		size_t gap = strspn(line + at, " "), word;

		gap = gap < len - at ? gap : len - at;
		word = strcspn(line + at + gap, " \n");
		const size_t needs = columns_of(line + at + gap, word);

		if (column > indent && word > 0 && column + gap + needs > width) {
			ct_str_addf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (word > 0) {
			ct_str_add_bytes(out, line + at, gap);
			column += gap;
		}
		ct_str_add_bytes(out, line + at + gap, word);
		column += needs;
		at += gap + word;
	}
}

void ct_wrap(const char *text, int width, struct ct_str *out)
{
	while (*text) {
		const size_t len = strcspn(text, "\n");

		if (width <= 0)
			ct_str_add_bytes(out, text, len);
		else
			wrap_line(text, len, (size_t)width, out);
		text += len;
		if (*text == '\n') {
			ct_str_add(out, "\n");
			text++;
		}
	}
}
