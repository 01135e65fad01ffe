/* Merges the output of several processes, line by line. */
#ifndef CT_TRAINER_LAUNCH_LINES_H
#define CT_TRAINER_LAUNCH_LINES_H

#include "base/mem.h"

/* The read end of a pipe, and the incomplete line that was read from it. */
struct ct_lines {
	int fd; /* not blocking; -1: closed */
	struct ct_str line;
};

/* Copies the available lines to `to` (STDOUT_FILENO or STDERR_FILENO), each with the prefix. At the end of the stream,
 * copies the last line even if it is incomplete, and closes fd. Does not block. */
void ct_lines_drain(struct ct_lines *l, int to, const char *prefix);
void ct_lines_release(struct ct_lines *l);
/* Erases the live status line of rank 0, before another process writes to the terminal. */
void ct_lines_clear_live(void);

#endif
