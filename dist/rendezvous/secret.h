/* The secret that the ranks of a run share. Only a client that has the secret can join the run, read its store or end
 * it.
 *
 * The sources of the secret, in the order in which they are tried:
 *   1. the environment variable CTRAIN_TOKEN
 *   2. the random key of the job, which Open MPI's mpirun gives only to its processes
 *   3. RUN/token, if all nodes share the run directory
 *   4. ~/.ctrain/token
 *   5. node 0 (or rank 0) creates RUN/token, and the others wait for it
 * A file with a secret must consist of one line, belong to the user who runs ctrain, and give no permissions to anyone
 * else. A run on several hosts without a secret does not start, unless dist.open_network is set in the config. */
#ifndef CT_DIST_RENDEZVOUS_SECRET_H
#define CT_DIST_RENDEZVOUS_SECRET_H

#include "dist/store/store.h"

struct ct_secret_opts {
	const char *run_dir; /* NULL: there is none */
	bool open_network;   /* run without a secret */
	bool first;          /* this process creates RUN/token if there is no other source */
};

struct ct_secret {
	char token[CT_TOKEN_HEX]; /* "" if dist.open_network is set */
	char from[320];           /* for messages: "CTRAIN_TOKEN", "runs/x/token" */
	bool in_env;              /* the token is the value of CTRAIN_TOKEN */
	bool in_file, made;       /* in_file: `from` is a file; made: this call has created it */
};

/* Looks for a secret; does not wait. Returns CT_NOT_FOUND if there is none yet; the message lists the sources. Returns
 * CT_USAGE if there is a secret that cannot be used (because it is too long, or in a file that others can read). */
enum ct_status ct_secret_find(const struct ct_secret_opts *opts, struct ct_secret *out) CT_MUST_CHECK;
/* Sets the error chain, with status CT_TIMEOUT, for a caller to which ct_secret_find has returned CT_NOT_FOUND for
 * waited_s seconds. The message also states whether a store answers at host:port. Without a run directory, there is
 * nothing to wait for, and the status is CT_USAGE. */
enum ct_status ct_secret_missing(const char *run_dir, double waited_s, const char *host, int port) CT_MUST_CHECK;
/* Uses only the first two sources. *out is zeroed if they have no secret. */
enum ct_status ct_secret_from_env(struct ct_secret *out) CT_MUST_CHECK;

/* Reads a file that only this user can read, such as ct_file_replace_private writes. *text is NUL-terminated and owned
 * by the caller. Fails with CT_NOT_FOUND if there is no file, with CT_USAGE if the file belongs to another user or
 * others can read or write it, and with CT_DATA if it is not a regular file or has more than max bytes. */
enum ct_status ct_secret_file_read(const char *path, size_t max, char **text, size_t *len) CT_MUST_CHECK;

#endif
