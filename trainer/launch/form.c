/* The node that leads always takes part; nodes are dropped from the end of the others until batch.global can be divided
 * among the ranks. The global batch never changes, so training continues with the same samples on any number of nodes.
 * Waiting ends at once when all nodes are there, after join_wait when they are enough, and at the deadline in any case.
 * A node is there as long as its launcher is connected to the store. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/form.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/output.h"
#include "dist/store/failure.h"
#include "trainer/job/signals.h"
#include "trainer/plan/elastic.h"

#define LOOK_NS (50 * CT_MS)
#define QUIET_NS CT_SEC /* nodes that are started by a script join within this time, and nothing is printed */

/* Takes the node that leads the job, and the first ones of the others. */
static void take_first(const struct ct_roll *all, const bool *here, int leader, int n, struct ct_roll *out)
{
	out->n_nodes = all->n_nodes;
	out->world = 0;
	n -= here[leader];
	for (int k = 0; k < all->n_nodes; k++) {
		out->first[k] = out->world;
		if (here[k] && (k == leader || n-- > 0))
			out->world += all->first[k + 1] - all->first[k];
	}
	out->first[all->n_nodes] = out->world;
}

int ct_form_select(const struct ct_config *c, const struct ct_roll *all, const bool *here, struct ct_roll *out)
{
	int n = 0;

	for (int k = 0; k < all->n_nodes; k++)
		n += here[k];
	for (; n >= (int)c->launch.min_nodes; n--) {
		take_first(all, here, (int)c->launch.node_rank, n, out);
		if (ct_plan_divides(c, (uint32_t)out->world))
			return out->world;
	}
	return 0;
}

int ct_form_count(const struct ct_roll *r)
{
	return ct_form_index(r, r->n_nodes);
}

int ct_form_index(const struct ct_roll *r, int node)
{
	int n = 0;

	for (int k = 0; k < node; k++)
		n += r->first[k + 1] > r->first[k];
	return n;
}

/* The ranks of all nodes, and of those that take part, with memory for both. */
struct choice {
	struct ct_roll all, chosen;
	bool *here;
	int n_here;
};

static void release(struct choice *x)
{
	ct_roll_release(&x->all);
	ct_roll_release(&x->chosen);
	ct_free(x->here);
}

static enum ct_status begin(const struct ct_config *c, struct choice *x)
{
	struct ct_ranks most;

	*x = (struct choice){0};
	CT_TRY(ct_plan_ranks(c, &most));
	x->all = (struct ct_roll){most.world, most.n_nodes, ct_plan_first_ranks(c, &most)};
	x->chosen.first = CT_NEW_ARRAY(int, (size_t)most.n_nodes + 1);
	x->here = CT_NEW_ARRAY(bool, (size_t)most.n_nodes);
	if (x->all.first && x->chosen.first && x->here)
		return CT_OK;
	release(x);
	return CT_FAIL(CT_NOMEM, "out of memory");
}

static int look(const struct ct_config *c, const ct_store_server *server, struct choice *x)
{
	x->n_here = 0;
	for (int k = 0; k < x->all.n_nodes; k++)
		x->n_here += x->here[k] = k == (int)c->launch.node_rank || ct_store_server_has_node(server, k);
	return ct_form_select(c, &x->all, x->here, &x->chosen);
}

static enum ct_status too_few(const struct ct_config *c, const struct choice *x, int64_t since)
{
	const double seconds = ct_seconds_since(since);

	if (x->n_here < (int)c->launch.min_nodes) {
		CT_FAIL(CT_TIMEOUT, "only %d of at least %lld nodes have joined within %.1f s (launch.nodes)",
			x->n_here, (long long)c->launch.min_nodes, seconds);
		return ct_error_hint("start ctrain on more nodes, or raise dist.rendezvous_timeout");
	}
	CT_FAIL(CT_CONFIG, "batch.global %lld cannot be divided among the ranks of %lld to %d nodes",
		(long long)c->batch.global, (long long)c->launch.min_nodes, x->n_here);
	return ct_error_hint("use a batch.global that is a multiple of every number of ranks that may occur");
}

static void print_state(const struct ct_config *c, const struct choice *x, int world, int64_t decide)
{
	char end[80] = "";

	if (world > 0)
		snprintf(end, sizeof(end), "; starting without the others in %.0f s",
			 (double)(decide - ct_now_ns()) / CT_SEC);
	ct_output_print(STDERR_FILENO, "ctrain: waiting for nodes: %d of %lld to %lld have joined%s\n", x->n_here,
			(long long)c->launch.min_nodes, (long long)c->launch.nodes, end);
}

enum ct_status ct_form_wait(const struct ct_config *c, const ct_store_server *server, int signals, int64_t since,
			    int64_t deadline, struct ct_roll *roll)
{
	const int64_t start = ct_now_ns(), decide = start + (int64_t)(c->launch.join_wait * 1e9);
	struct choice x;
	int world = 0, printed = -1;
	enum ct_status st = CT_OK;

	CT_TRY(begin(c, &x));
	for (;;) {
		int64_t now = ct_now_ns();

		world = look(c, server, &x);
		if (world == x.all.world || (world > 0 && now >= decide) || now >= deadline)
			break;
		if (printed != x.n_here && now - start > QUIET_NS) {
			printed = x.n_here;
			print_state(c, &x, world, decide);
		}
		int sig = ct_signals_wait(signals, ct_deadline_in(LOOK_NS));
		if (sig != 0) {
			st = CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) before any rank was started", sig,
				     strsignal(sig));
			break;
		}
	}
	if (st == CT_OK && world == 0)
		st = too_few(c, &x, since);
	if (st == CT_OK) {
		roll->world = world;
		memcpy(roll->first, x.chosen.first, ((size_t)roll->n_nodes + 1) * sizeof(int));
		if (ct_form_count(roll) < roll->n_nodes)
			ct_output_print(STDERR_FILENO, "ctrain: starting with %d of %d nodes (%d rank%s)\n",
					ct_form_count(roll), roll->n_nodes, world, ct_plural(world));
	}
	release(&x);
	return st;
}

bool ct_form_can_grow(const struct ct_config *c, const ct_store_server *server, const struct ct_roll *now)
{
	struct choice x;

	if (begin(c, &x) < 0) {
		ct_error_clear();
		return false;
	}
	bool grows = look(c, server, &x) > now->world;
	release(&x);
	return grows;
}
