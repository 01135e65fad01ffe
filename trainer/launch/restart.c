/* A crash loop is recognized by rank and step of successive failures: one that occurs again at the same place will most
 * likely do so a third time. A failure at an unknown rank or step is never a loop. The order of the tests decides what
 * the user reads: useless, then loop, then used up. The delay grows while the job makes no progress and starts again
 * from one second when a later step was reached. */
#include "trainer/launch/restart.h"

#include "base/clock.h"

#define FIRST_DELAY_NS CT_SEC
#define MAX_DELAY_NS (60 * CT_SEC)

/* Errors of the machine, of the network or of a process may be gone in the next attempt. All others depend on the
 * configuration and the data, which have not changed. */
static bool may_be_gone(enum ct_status st)
{
	switch (st) {
	case CT_DEVICE:
	case CT_NOMEM:
	case CT_COMM:
	case CT_PEER_LOST:
	case CT_TIMEOUT:
	case CT_CANCELLED:
	case CT_IO:
	case CT_BUG:
		return true;
	default:
		return false;
	}
}

static bool is_loop(const struct ct_restarts *r)
{
	if (r->last.rank < 0 || r->last.step < 0)
		return false;
	return r->n_same >= (r->last.step > 0 ? CT_LOOP_TRAINING : CT_LOOP_START);
}

enum ct_restart_choice ct_restarts_next(struct ct_restarts *r, const struct ct_attempt_end *end)
{
	const bool same = r->n_same > 0 && end->rank == r->last.rank && end->step == r->last.step,
		   later = r->n_same == 0 || end->step > r->last.step;

	r->n_same = same ? r->n_same + 1 : 1;
	r->last = *end;
	if (!may_be_gone(end->status))
		return CT_RESTART_USELESS;
	if (is_loop(r))
		return CT_RESTART_LOOP;
	if (r->used >= r->budget)
		return CT_RESTART_USED;
	r->used++;
	if (later)
		r->backoff = (struct ct_backoff){FIRST_DELAY_NS, MAX_DELAY_NS};
	r->delay_ns = ct_backoff_ns(&r->backoff);
	return CT_RESTART_AGAIN;
}
