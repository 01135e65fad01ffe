/* The secret that the ranks of one run share: a client with the secret can read, join and end the run, and no other
 * client can.
 *
 * Where it comes from, in this order:
 *   1. the environment variable CTRAIN_TOKEN
 *   2. the job: the random key that Open MPI's mpirun gives to its processes, and to no other user
 *   3. RUN/token, in the run directory where that is on a file system all nodes share
 *   4. ~/.ctrain/token
 *   5. node 0 (or rank 0) makes RUN/token; the others wait for it
 * A file holds one line and must belong to the user who runs ctrain, with no permissions for anyone else. Without any of
 * these a run over several hosts does not start, unless the config says dist.open_network. */
#ifndef CT_DIST_RENDEZVOUS_SECRET_H
#define CT_DIST_RENDEZVOUS_SECRET_H

#include "dist/store/store.h"

struct ct_secret_opts {
	const char *run_dir; /* NULL: there is none */
	bool open_network;   /* run without a secret */
	bool first;          /* this process makes RUN/token when there is no other source */
};

struct ct_secret {
	char token[CT_TOKEN_HEX]; /* "": the network is open */
	char from[320];           /* for messages: "CTRAIN_TOKEN", "runs/x/token" */
	bool in_file, made;       /* `from` is a file; it was made now */
};

/* CT_OK; CT_NOT_FOUND: there is none yet; the message lists the sources. CT_USAGE: there is one that cannot be used
 * (too long, or in a file that others can read). Does not wait. */
enum ct_status ct_secret_find(const struct ct_secret_opts *opts, struct ct_secret *out) CT_MUST_CHECK;
/* For use when ct_secret_find has returned CT_NOT_FOUND for waited_s seconds. Returns CT_TIMEOUT, with a message
 * that also reports whether a store answers at host:port. Without a run directory there is nothing to wait for:
 * CT_USAGE. */
enum ct_status ct_secret_missing(const char *run_dir, double waited_s, const char *host, int port) CT_MUST_CHECK;
/* Uses the first two sources only: *out is zeroed when they have no secret. */
enum ct_status ct_secret_from_env(struct ct_secret *out) CT_MUST_CHECK;

/* Replaces the file atomically by one that only this user can read. */
enum ct_status ct_secret_file_write(const char *path, const void *data, size_t len) CT_MUST_CHECK;
/* Reads such a file; *text is owned and NUL-terminated. CT_NOT_FOUND: there is none. CT_USAGE: it belongs to another
 * user, or others can read or write it. CT_DATA: not a regular file, or more than max bytes. */
enum ct_status ct_secret_file_read(const char *path, size_t max, char **text, size_t *len) CT_MUST_CHECK;

#endif
