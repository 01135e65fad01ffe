/* The text is split in place: fields are terminated where their delimiter was, which has been read by then, and quotes
 * are removed by moving characters forward. So nothing is copied, and fields live as long as the text. The text ends
 * with a NUL, and a NUL inside of it is refused, so every loop ends there without counting. Lines are counted also
 * inside of quotes, for messages. If the text is only the start of a file, a record that ends inside of quotes is not
 * an error but is left out. */
#include "data/files/csv.h"

#include <string.h>

#include "base/mem.h"

#define MAX_FIELDS 4096

static const char delimiters[] = ",\t;";

static char find_delimiter(const char *p)
{
	size_t n[sizeof(delimiters)] = {0}, most = 0;
	bool quoted = false;

	for (; *p && (quoted || !strchr("\r\n", *p)); p++) {
		const char *d = strchr(delimiters, *p);

		quoted ^= *p == '"';
		if (d && !quoted)
			n[d - delimiters]++;
	}
	for (size_t i = 1; delimiters[i]; i++)
		most = n[i] > n[most] ? i : most;
	return delimiters[most];
}

enum ct_status ct_csv_init(struct ct_csv *r, char *text, size_t len, const char *path)
{
	*r = (struct ct_csv){.path = path, .at = text, .next_line = 1};
	if (memchr(text, '\0', len) || !ct_utf8_valid(text, len)) {
		CT_FAIL(CT_DATA, "%s is not a text file in UTF-8", path);
		return ct_error_hint("save it with the encoding UTF-8; spreadsheets call this format \"CSV UTF-8\"");
	}
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		r->at += 3;
	while (*r->at && strchr("\r\n", *r->at)) {
		r->next_line += *r->at == '\n' || r->at[1] != '\n';
		r->at++;
	}
	r->delimiter = find_delimiter(r->at);
	return CT_OK;
}

void ct_csv_release(struct ct_csv *r)
{
	ct_free(r->fields);
	*r = (struct ct_csv){0};
}

/* Moves past a line break, if there is one. */
static void skip_line_break(struct ct_csv *r)
{
	if (!*r->at || !strchr("\r\n", *r->at))
		return;
	r->at += r->at[0] == '\r' && r->at[1] == '\n' ? 2 : 1;
	r->next_line++;
}

static bool is_whitespace(const struct ct_csv *r, char c)
{
	return c == ' ' || (c == '\t' && r->delimiter != '\t');
}

/* Removes the quotes of the field at r->at, and returns its end. r->at is set to the character after the closing quote.
 */
static enum ct_status read_quoted(struct ct_csv *r, char **end)
{
	char *to = r->at, *from = r->at + 1;

	for (;; from++) {
		r->in_quotes = *from == '\0';
		if (r->in_quotes) {
			CT_FAIL(CT_DATA, "%s:%u: a quoted field has no closing quote", r->path, r->line);
			return ct_error_hint("inside of quotes, \"\" is a quote");
		}
		if (*from == '"' && *++from != '"')
			break;
		r->next_line += *from == '\n' || (*from == '\r' && from[1] != '\n');
		*to++ = *from;
	}
	*end = to;
	r->at = from;
	while (is_whitespace(r, *r->at))
		r->at++;
	if (*r->at && *r->at != r->delimiter && !strchr("\r\n", *r->at)) {
		CT_FAIL(CT_DATA, "%s:%u: a quoted field is followed by other characters than \"%s\"", r->path, r->line,
			r->delimiter == '\t' ? "TAB" : (char[]){r->delimiter, '\0'});
		return ct_error_hint("inside of quotes, \"\" is a quote");
	}
	return CT_OK;
}

static char *read_plain(struct ct_csv *r)
{
	char *start = r->at, *end;

	while (*r->at && *r->at != r->delimiter && !strchr("\r\n", *r->at))
		r->at++;
	for (end = r->at; end > start && is_whitespace(r, end[-1]); end--)
		;
	return end;
}

/* Returns whether more fields follow in this record. */
static enum ct_status read_field(struct ct_csv *r, bool *more)
{
	char *start, *end = NULL;

	if (r->n == MAX_FIELDS)
		return CT_FAIL(CT_DATA, "%s:%u: more than %d fields", r->path, r->line, MAX_FIELDS);
	while (is_whitespace(r, *r->at))
		r->at++;
	start = r->at;
	if (*start == '"')
		CT_TRY(read_quoted(r, &end));
	else
		end = read_plain(r);
	CT_TRY_GROW(r->fields, r->n, r->cap);
	r->fields[r->n++] = start;
	*more = *r->at == r->delimiter;
	if (*more)
		r->at++;
	else
		skip_line_break(r);
	*end = '\0'; /* what was here has been read */
	return CT_OK;
}

enum ct_status ct_csv_next(struct ct_csv *r)
{
	enum ct_status st = CT_OK;
	bool more = true;

	do {
		r->n = 0;
		r->line = r->next_line;
		if (!*r->at)
			return CT_OK;
		for (more = true; more && st == CT_OK;)
			st = read_field(r, &more);
		if (st < 0 && r->in_quotes && r->is_start) {
			ct_error_clear();
			r->at += strlen(r->at);
			r->n = 0;
			return CT_OK;
		}
		CT_TRY(st);
	} while (r->n == 1 && r->fields[0][0] == '\0');
	return CT_OK;
}
