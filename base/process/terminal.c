/* Colors, a live status line and UTF-8 symbols are separate questions. A pipe can request colors (FORCE_COLOR), but
 * never has a cursor to move; NO_COLOR overrides everything. An empty variable counts as unset, as no-color.org
 * requires. Columns are counted per code point, without a table of wide or combining characters; that is sufficient for
 * the strings that ctrain prints. Cutting never splits a character or an escape sequence. */
#include "base/process/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool ct_terminal_is_live(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

/* An empty value does not count, and "0" means no. */
static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value && strcmp(value, "0") != 0;
}

bool ct_terminal_has_colors(int fd)
{
	const char *no = getenv("NO_COLOR");

	if (no && *no)
		return false;
	return is_set("FORCE_COLOR") || is_set("CLICOLOR_FORCE") || ct_terminal_is_live(fd);
}

bool ct_terminal_is_utf8(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

int ct_terminal_columns(int fd, int otherwise)
{
	struct winsize size;

	return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

int ct_terminal_rows(int fd, int otherwise)
{
	struct winsize size;

	return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : otherwise;
}

/* Returns the length of the escape sequence ESC [ ... letter at s, or 0 if there is none. */
static size_t escape_len(const char *s)
{
	size_t n = 2;

	if (s[0] != '\033' || s[1] != '[')
		return 0;
	n += strspn(s + n, "0123456789;?");
	return s[n] ? n + 1 : n;
}

static size_t measure(const char *text, size_t most, size_t *columns)
{
	size_t at = 0;

	for (*columns = 0; text[at];) {
		size_t n = escape_len(text + at), width = n > 0 ? 0 : 1;

		if (n == 0)
			for (n = 1; ((unsigned char)text[at + n] & 0xC0) == 0x80;)
				n++;
		if (*columns + width > most)
			break;
		*columns += width;
		at += n;
	}
	return at;
}

size_t ct_text_columns(const char *text)
{
	size_t columns;

	(void)measure(text, (size_t)-2, &columns);
	return columns;
}

size_t ct_text_cut(const char *text, size_t columns)
{
	size_t used;

	return measure(text, columns, &used);
}
