/* How the nodes were started, and the environment that they were started with. If this node could not join the others,
 * it has no facts about them, so no missing nodes are listed; and if its port or the master address is wrong, nothing
 * is said here, because those checks describe the cause. */
#include <stdio.h>
#include <string.h>

#include "trainer/tools/doctor/checks_impl.h"

static void unjoined(const struct ct_cluster *c, struct ct_findings *out)
{
	const struct ct_facts *n = &c->nodes[c->self];

	/* The checks of the port and of the master address describe the cause. */
	if (n->port_error[0] || ct__master_is_wrong(n))
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, n);

	ct_finding_what(f, "this node cannot join the others: %s", c->join_error);
	ct_finding_why(f, "a training run would end with the same message, and the other nodes were not checked");
	if (n->node > 0 && ct__master_is_literal_loopback(n)) {
		ct_finding_fix(
			f,
			"%s is this host itself: unless all nodes are on one host, pass the address of node 0 to --master-addr on all nodes",
			n->master);
		return;
	}
	ct_finding_fix(
		f, "%s",
		c->join_hint[0]
			? c->join_hint
			: "start `ctrain doctor` on node 0 at the same time, and allow TCP connections to it in its firewall");
}

void ct__check_missing(const struct ct_cluster *c, struct ct_findings *out)
{
	struct ct_str missing = {0};
	int n = 0;

	if (c->join_error[0]) {
		unjoined(c, out);
		return;
	}
	for (int i = 0; i < c->n; i++) {
		if (c->nodes[i].present)
			continue;
		ct_str_addf(&missing, "%s%d", n++ > 0 ? ", " : "", i);
	}
	if (n > 0) {
		struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_TIMEOUT, NULL);

		ct_finding_what(f, "node%s %s of %d ha%s not reported", ct_plural(n), ct_str_text(&missing), c->n,
				n == 1 ? "s" : "ve");
		ct_finding_why(f, "training starts when all nodes have joined");
		ct_finding_fix(
			f,
			"run `ctrain doctor` with the same options and --node-rank %s on %s, and check that this host can connect to the master address",
			ct_str_text(&missing), n == 1 ? "that host" : "these hosts");
	}
	ct_str_release(&missing);
}

void ct__check_nested(const struct ct_facts *n, struct ct_findings *out)
{
	struct ct_finding *f;

	if (!n->asks_for_ranks || strcmp(n->launcher, "none") == 0)
		return;
	f = ct_finding_add(out, CT_FINDING_ERROR, CT_USAGE, n);
	if (n->tasks_here > 1)
		ct_finding_what(
			f, "srun has started %lld tasks on this node, and each of them is asked to start %lld ranks",
			(long long)n->tasks_here, (long long)n->ranks);
	else
		ct_finding_what(f, "%s has started this process as a rank, and it is asked to start ranks itself",
				n->launcher);
	ct_finding_why(
		f, "two launchers within each other would start too many ranks, which use the same devices and ports");
	ct_finding_fix(
		f,
		"remove --procs, --nodes and --node-rank, so that each task is one rank; or start one task per node: srun --ntasks-per-node=1");
}

void ct__check_node_rank(const struct ct_facts *n, struct ct_findings *out)
{
	struct ct_finding *f;

	if (n->slurm_node < 0 || n->slurm_node == n->node)
		return;
	f = ct_finding_add(out, CT_FINDING_ERROR, CT_USAGE, n);
	ct_finding_what(f, "the node rank is %lld, but Slurm's rank of this node is SLURM_NODEID=%lld",
			(long long)n->node, (long long)n->slurm_node);
	ct_finding_why(
		f,
		"the shell of the batch script replaces $SLURM_NODEID by 0 for all nodes, so that all of them join as node 0");
	ct_finding_fix(
		f,
		"remove --node-rank (srun sets it for each task), or quote it: srun bash -c 'ctrain ... --node-rank $SLURM_NODEID'");
}

void ct__check_n_nodes(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (n->n_nodes == first->n_nodes)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_USAGE, n);

	ct_finding_what(f, "this node was started for %lld nodes, node 0 for %lld", (long long)n->n_nodes,
			(long long)first->n_nodes);
	ct_finding_why(f, "the nodes would number their ranks differently");
	ct_finding_fix(f, "pass the same --nodes on all nodes, for example --nodes %lld", (long long)first->n_nodes);
}

void ct__check_names(const struct ct_facts *n, struct ct_findings *out)
{
	for (int64_t k = 0; k < n->n_names; k++) {
		struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_USAGE, n);

		ct_finding_what(f, "the environment variable %s is set, but nothing reads it", n->names[k].name);
		ct_finding_why(f, "%s is not set, so the value has no effect", n->names[k].meant);
		ct_finding_fix(f, "export %s=\"$%s\"; unset %s", n->names[k].meant, n->names[k].name, n->names[k].name);
	}
}

void ct__check_settings(const struct ct_facts *n, struct ct_findings *out)
{
	for (int64_t k = 0; k < n->n_settings; k++) {
		const struct ct_setting_facts *s = &n->settings[k];
		struct ct_finding *f =
			ct_finding_add(out, s->wrong ? CT_FINDING_ERROR : CT_FINDING_WARNING, CT_CONFIG, n);

		ct_finding_what(f, "%s", s->why);
		ct_finding_why(
			f, s->wrong
				   ? "the communicator could not use any network interface, or would ignore the setting"
				   : "the setting may have another effect than expected");
		ct_finding_fix(f, "correct it or run `unset %s`%s%s", s->name, s->hint[0] ? "; " : "", s->hint);
	}
}
