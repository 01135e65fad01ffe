/* The rendezvous file of file://: rank 0 writes its addresses and a nonce to a file on a file system that all ranks
 * see. A rank that reads an old file finds no server, or is refused for its nonce, and reads again. */
#ifndef CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H
#define CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H

#include "dist/rendezvous/handshake_impl.h"

#define CT_RENDEZVOUS_MAX_ADDRS 16

struct ct_rendezvous_file {
	char run_id[64], nonce[CT_TOKEN_HEX], net_key[128];
	int port, n_addrs;
	char addrs[CT_RENDEZVOUS_MAX_ADDRS][64]; /* numeric, in the order to try */
};

/* Fresh nonce, this host's addresses. */
enum ct_status ct__rendezvous_file_init(struct ct_rendezvous_file *m, const char *run_id, const char *net_key,
					int port) CT_MUST_CHECK;
/* Replaces the file atomically. A file that is not a rendezvous file is CT_USAGE and is not changed. */
enum ct_status ct__rendezvous_file_publish(const struct ct_rendezvous_file *m, const char *path) CT_MUST_CHECK;
/* CT_NOT_FOUND: none yet (or empty). CT_DATA: another kind of file. */
enum ct_status ct__rendezvous_file_read(const char *path, struct ct_rendezvous_file *out) CT_MUST_CHECK;
/* Removes the file if it is still the one with this nonce. */
void ct__rendezvous_file_remove(const char *path, const char *nonce);
/* Contents of a rendezvous file, NUL-terminated. For ct__rendezvous_file_read and the tests. */
enum ct_status ct__rendezvous_file_parse(const char *text, const char *path,
					 struct ct_rendezvous_file *out) CT_MUST_CHECK;

#endif
