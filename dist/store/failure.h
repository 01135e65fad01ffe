/* Formats members and failures, so that all messages describe them in the same way. */
#ifndef CT_DIST_STORE_FAILURE_H
#define CT_DIST_STORE_FAILURE_H

#include "dist/store/store.h"

/* Writes "rank 1 (pid 4711 on host x)", or "the launcher (pid 12 on host x)" for rank -1. CT_MEMBER_TEXT bytes are
 * enough. */
#define CT_MEMBER_TEXT 128
void ct_member_text(char *buf, size_t len, int rank, int pid, const char *host);
/* Writes "; last seen at collective 1234, training, step 120", or a part of it if less is known; "" if nothing is
 * known. CT_WHERE_TEXT bytes are enough. */
#define CT_WHERE_TEXT 112
void ct_where_text(char *buf, size_t len, const struct ct_position *at);

/* Fills in rank, pid, host, position and status from m and `status`, and the message "<member> <what><where>", which
 * consists of the strings of ct_member_text, fmt and ct_where_text. */
void ct_failure_set(struct ct_failure *f, const struct ct_member_state *m, enum ct_status status, const char *fmt, ...)
	CT_PRINTF(4, 5);
/* Fills in the failure that a client reports when its connection to the server has ended. err: errno of the connection,
 * or 0 if the server closed it. */
void ct_failure_server_gone(struct ct_failure *f, int rank, int pid, const char *host, int err);
/* Returns true if err means that the network or the host stopped responding, and false if it means that the process
 * ended. */
bool ct_errno_is_silence(int err);

#endif
