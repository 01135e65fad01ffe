/* Reads the lines that a run adds to metrics.jsonl. */
#ifndef CT_TRAINER_TOOLS_RUNS_FOLLOW_H
#define CT_TRAINER_TOOLS_RUNS_FOLLOW_H

#include "base/json.h"

struct ct_follow {
	char *path;
	int fd; /* -1: not open yet */
	uint64_t at;
	struct ct_str pending; /* an incomplete line */
};

enum ct_status ct_follow_open(struct ct_follow *f, const char *path) CT_MUST_CHECK;
/* Calls use for each complete line since the last call; lines that are not JSON objects are skipped. If the file has
 * been replaced or cut, because the run was continued from a checkpoint, sets *again and uses no line: the next call
 * begins at its start. A file that does not exist is empty. Stops at the first error of use. */
typedef enum ct_status (*ct_follow_fn)(void *user, const ct_json *line);
enum ct_status ct_follow_poll(struct ct_follow *f, ct_follow_fn use, void *user, bool *again) CT_MUST_CHECK;
void ct_follow_close(struct ct_follow *f);

#endif
