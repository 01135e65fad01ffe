/* A table of text with aligned columns. */
#ifndef CT_TRAINER_TOOLS_CLI_TEXT_TABLE_H
#define CT_TRAINER_TOOLS_CLI_TEXT_TABLE_H

#include "base/mem.h"

struct ct_text_cell {
	char *text;        /* owned */
	const char *color; /* escape sequence, or NULL */
};

/* A zero-initialized struct with n_columns set is an empty table. */
struct ct_text_table {
	size_t n_columns;
	uint64_t right; /* bit i: column i is aligned to the right */
	struct ct_text_cell *cells;
	size_t n, cap;
	bool failed; /* out of memory */
};

/* Adds the next cell of the current row. Control bytes are escaped. */
void ct_text_table_add(struct ct_text_table *t, const char *color, const char *fmt, ...) CT_PRINTF(3, 4);
/* Appends the rows, without columns that are empty except for the first row, which is the header. If width is positive,
 * a row that is longer is truncated to it and ends with "...". */
enum ct_status ct_text_table_format(const struct ct_text_table *t, int width, bool colors,
				    struct ct_str *out) CT_MUST_CHECK;
void ct_text_table_release(struct ct_text_table *t);

#endif
