/* Reads tables in CSV format (RFC 4180): records of fields, separated by commas, tabs or semicolons. A field in double
 * quotes may contain delimiters, line breaks, and quotes that are doubled. Whitespace around unquoted fields is
 * removed, empty lines are ignored, and lines end with LF, CRLF or CR. */
#ifndef CT_DATA_FILES_CSV_H
#define CT_DATA_FILES_CSV_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ct_csv {
	const char *path;
	char *at; /* the next character */
	char delimiter;
	uint32_t next_line;
	char **fields; /* [n] of the current record */
	size_t n, cap;
	uint32_t line;  /* in which the current record starts, from 1 */
	bool is_start;  /* the text is only the start of a file: if it ends inside of quotes, the last record is ignored
			 */
	bool in_quotes; /* the text ended inside of quotes */
};

/* Begins to read text [len], which is followed by a NUL. The text and the path are borrowed; the text is split in
 * place, and fields point into it. The delimiter is the one that occurs most often in the first line, outside of
 * quotes. Fails with CT_DATA if the text is not UTF-8; a byte order mark is skipped. The caller may then set is_start.
 */
enum ct_status ct_csv_init(struct ct_csv *r, char *text, size_t len, const char *path) CT_MUST_CHECK;
/* Reads the next record. At the end of the text, n is 0. Fails with CT_DATA and the message "PATH:LINE: ..." if quotes
 * are used incorrectly. */
enum ct_status ct_csv_next(struct ct_csv *r) CT_MUST_CHECK;
void ct_csv_release(struct ct_csv *r);

#endif
