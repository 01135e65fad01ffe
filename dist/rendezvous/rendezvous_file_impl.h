/* The file:// meeting: rank 0 publishes where it serves and a nonce in a file on a file system that all ranks see;
 * who reads an old file meets nobody, or is refused for its nonce, and reads again. For files of dist/ only. */
#ifndef CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H
#define CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H

#include "dist/rendezvous/handshake_impl.h"

#define CT_MEETING_MAX_ADDRS 16

struct ct_meeting {
	char run_id[64], nonce[CT_TOKEN_HEX], net_key[128];
	int port, n_addrs;
	char addrs[CT_MEETING_MAX_ADDRS][64]; /* numeric, in the order to try */
};

/* Fresh nonce, this host's addresses. */
enum ct_status ct__meeting_init(struct ct_meeting *m, const char *run_id, const char *net_key, int port) CT_MUST_CHECK;
/* Replaces the file atomically. A file there that is no meeting of ours is CT_USAGE and stays. */
enum ct_status ct__meeting_publish(const struct ct_meeting *m, const char *path) CT_MUST_CHECK;
/* CT_NOT_FOUND: none yet (or empty). CT_DATA: another kind of file. */
enum ct_status ct__meeting_read(const char *path, struct ct_meeting *out) CT_MUST_CHECK;
/* Removes the file if it is still the one with this nonce. */
void ct__meeting_remove(const char *path, const char *nonce);
/* Text of a meeting file, NUL-terminated. For ct__meeting_read and the tests. */
enum ct_status ct__meeting_parse(const char *text, const char *path, struct ct_meeting *out) CT_MUST_CHECK;

#endif
