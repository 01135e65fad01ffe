/* Properties of the terminal on which output is shown. */
#ifndef CT_BASE_PROCESS_TERMINAL_H
#define CT_BASE_PROCESS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Returns true if fd is a terminal that can move the cursor, which TERM=dumb cannot. */
bool ct_terminal_is_live(int fd);
/* Returns true if output to fd may contain colors: if fd is a live terminal, or if FORCE_COLOR or CLICOLOR_FORCE is
 * set. NO_COLOR takes precedence (no-color.org). */
bool ct_terminal_has_colors(int fd);
/* Returns true if the locale (LC_ALL, LC_CTYPE, LANG) uses UTF-8. */
bool ct_terminal_is_utf8(void);
/* Returns the number of columns of the terminal fd, or `otherwise` if it is unknown. */
int ct_terminal_columns(int fd, int otherwise);
int ct_terminal_rows(int fd, int otherwise); /* the same for rows */

/* Returns the number of columns of a string: a character of UTF-8 has one, and an escape sequence has none. */
size_t ct_text_columns(const char *text);
/* Returns the number of bytes of the longest start of `text` that has at most `columns` columns. */
size_t ct_text_cut(const char *text, size_t columns);

#endif
