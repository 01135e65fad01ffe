/* The parts of ct_identity_detect: reading the environment (identity.c), and the meeting point (identity_meet.c). */
#ifndef CT_DIST_RENDEZVOUS_IDENTITY_IMPL_H
#define CT_DIST_RENDEZVOUS_IDENTITY_IMPL_H

#include "dist/rendezvous/rendezvous.h"

struct ct__env {
	ct_getenv_fn get;
	void *user;
};

static inline const char *ct__env_value(const struct ct__env *e, const char *name)
{
	return name ? e->get(name, e->user) : NULL;
}

/* If the variable is not set, *out is unchanged. */
enum ct_status ct__env_int(const struct ct__env *e, const char *name, int *out) CT_MUST_CHECK;
/* Fails: `have` is set, but at least one of the names [n] is not. All that are missing are in the message. */
enum ct_status ct__env_some_missing(const struct ct__env *e, const char *have, const char *const *names,
				    size_t n) CT_MUST_CHECK;
enum ct_status ct__env_half_set(const char *have, const char *missing) CT_MUST_CHECK;

/* Sets id->init: the address at which the ranks meet. init_override is NULL or the URL that the user has given. id->by,
 * world, local_world and restart must be set. */
enum ct_status ct__identity_meet(const struct ct__env *e, const char *init_override,
				 struct ct_identity *id) CT_MUST_CHECK;
/* Sets id->run_id, if the launcher has named the run. */
void ct__identity_name_run(const struct ct__env *e, struct ct_identity *id);

#endif
