/* Descriptions of members and failures, with the same words in all messages. */
#ifndef CT_DIST_STORE_FAILURE_H
#define CT_DIST_STORE_FAILURE_H

#include "dist/store/store.h"

/* "rank 1 (pid 4711 on host x)", or "the launcher (pid 12 on host x)" for rank -1. Enough room: CT_MEMBER_TEXT. */
#define CT_MEMBER_TEXT 128
void ct_member_text(char *buf, size_t len, int rank, int pid, const char *host);
/* "; last seen at collective 1234, step 120", shorter when less is known, "" when nothing is. CT_WHERE_TEXT. */
#define CT_WHERE_TEXT 112
void ct_where_text(char *buf, size_t len, int64_t seq, const char *phase);

/* Fills who, where, status and message ("<member> <what><where>"). */
void ct_failure_set(struct ct_failure *f, const struct ct_member_state *m, enum ct_status status, const char *fmt, ...)
	CT_PRINTF(4, 5);
/* The failure that clients report when the connection to the server has ended. err: errno of the connection, 0 for
 * its end. */
void ct_failure_server_gone(struct ct_failure *f, int rank, int pid, const char *host, int err);
/* Did the network stop responding (true), or did the process end (false)? */
bool ct_errno_is_silence(int err);

#endif
