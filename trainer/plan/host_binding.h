/* The binding of the ranks on this host (launch.bind). */
#ifndef CT_TRAINER_PLAN_HOST_BINDING_H
#define CT_TRAINER_PLAN_HOST_BINDING_H

#include "base/mem.h"
#include "trainer/plan/binding.h"

/* What decides on the binding. */
struct ct_host_binding {
	struct ct_binding_job job;
	struct ct_topology cpus;
	int *near;
};

/* Fails with CT_UNSUPPORTED if launch.bind is numa or core, and ctrain was built without hwloc. */
enum ct_status ct_host_binding_check(const struct ct_config *c) CT_MUST_CHECK;
/* Finds out what decides on the binding of `ranks` ranks on this host. Fails like ct_host_binding_check. *out must not
 * be copied. */
enum ct_status ct_host_binding_open(const struct ct_config *c, int ranks, bool other_launcher,
				    struct ct_host_binding *out) CT_MUST_CHECK;
void ct_host_binding_close(struct ct_host_binding *h);
/* Appends lines that describe the binding of all ranks, whose numbers begin with first_rank; of many ranks, only the
 * first and the last ones. */
void ct_host_binding_lines(const struct ct_host_binding *h, int first_rank, struct ct_str *out);
/* Binds this process to b->cpus, and makes it prefer the memory of b->node. If the system does not allow it, b->why_not
 * becomes the reason. Does nothing if the rank is not to be bound. Call it before any thread is started. */
void ct_host_binding_apply(const struct ct_host_binding *h, struct ct_binding *b);
/* Binds the compute threads of the calling thread, except for itself, to cores, if b requests it. Fails with CT_NOMEM.
 */
enum ct_status ct_host_binding_pin(const struct ct_host_binding *h, const struct ct_binding *b) CT_MUST_CHECK;

#endif
