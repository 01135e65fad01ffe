/* The rendezvous file of file://. Rank 0 writes its addresses and a nonce to this file, on a file system that all ranks
 * share. A rank that has read an old file finds no server at the addresses in it, or is refused because of the nonce,
 * and reads the file again. */
#ifndef CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H
#define CT_DIST_RENDEZVOUS_RENDEZVOUS_FILE_IMPL_H

#include "dist/rendezvous/handshake_impl.h"

#define CT_RENDEZVOUS_MAX_ADDRS 16

struct ct_rendezvous_file {
	char run_id[64], nonce[CT_TOKEN_HEX], net_key[128];
	int port, n_addrs;
	char addrs[CT_RENDEZVOUS_MAX_ADDRS][64]; /* numeric, in the order in which to try them */
};

/* Fills in a new nonce and this host's addresses. */
enum ct_status ct__rendezvous_file_init(struct ct_rendezvous_file *m, const char *run_id, const char *net_key,
					int port) CT_MUST_CHECK;
/* Replaces the file atomically. If the existing file is not a rendezvous file, it is not changed, and the result is
 * CT_USAGE. */
enum ct_status ct__rendezvous_file_publish(const struct ct_rendezvous_file *m, const char *path) CT_MUST_CHECK;
/* CT_NOT_FOUND: the file does not exist yet or is empty. CT_DATA: it is not a rendezvous file. */
enum ct_status ct__rendezvous_file_read(const char *path, struct ct_rendezvous_file *out) CT_MUST_CHECK;
/* Removes the file if it still contains this nonce. */
void ct__rendezvous_file_remove(const char *path, const char *nonce);
/* Parses the contents of a rendezvous file, NUL-terminated. For ct__rendezvous_file_read and tests. */
enum ct_status ct__rendezvous_file_parse(const char *text, const char *path,
					 struct ct_rendezvous_file *out) CT_MUST_CHECK;

#endif
