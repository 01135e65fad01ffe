/* The run directory and the data. Space and the speed of writing are judged on node 0 only, because rank 0 writes the
 * checkpoints. A run directory that is not shared is distinguished from one that is shared, but in which the lock of
 * node 0 has no effect (exchange.c tries the lock). */
#include "trainer/tools/doctor/checks_impl.h"

#define SLOW_MIB_PER_S 20.0

void ct__check_run_dir(const struct ct_facts *n, struct ct_findings *out)
{
	if (!n->run_error[0])
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_IO, n);

	ct_finding_what(f, "the run directory %s cannot be used: %s", n->run_dir, n->run_error);
	ct_finding_why(f, "rank 0 writes metrics and checkpoints there, and every rank its log");
	ct_finding_fix(f,
		       "set run.dir=PATH to a directory that you can write to; in a container, mount it: -v PATH:PATH");
}

/* Only rank 0 writes checkpoints. */
void ct__check_space(const struct ct_facts *n, struct ct_findings *out)
{
	char have[CT_BYTES_TEXT], need[CT_BYTES_TEXT];

	if (n->node != 0 || n->run_free_bytes < 0 || n->run_free_bytes >= n->run_needed_bytes)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_IO, n);

	ct_finding_what(
		f, "the file system of the run directory %s has %s free, but checkpoints and logs need at least %s",
		n->run_dir, ct_bytes_text((uint64_t)n->run_free_bytes, have),
		ct_bytes_text((uint64_t)n->run_needed_bytes, need));
	ct_finding_why(f, "the run would end with \"No space left on device\" when it saves");
	ct_finding_fix(f,
		       "free space (du -sh %s/../*), lower checkpoint.keep_last, or set run.dir to another file system",
		       n->run_dir);
}

static void check_run_speed(const struct ct_facts *n, struct ct_findings *out)
{
	if (n->node != 0 || n->run_mib_per_s <= 0 || n->run_mib_per_s >= SLOW_MIB_PER_S)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_IO, n);

	ct_finding_what(f, "writing to the run directory %s reaches only %.1f MiB/s", n->run_dir, n->run_mib_per_s);
	ct_finding_why(f, "checkpoints take long, and a job that is stopped may not save in time");
	ct_finding_fix(f, "set run.dir to a faster file system, and keep checkpoint.background=true");
}

void ct__check_speed(const struct ct_facts *n, struct ct_findings *out)
{
	check_run_speed(n, out);
	if (n->data_mib_per_s <= 0 || n->data_mib_per_s >= SLOW_MIB_PER_S)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_IO, n);

	ct_finding_what(f, "reading the data reaches only %.1f MiB/s on this node", n->data_mib_per_s);
	ct_finding_why(f, "the ranks wait for their samples, and all ranks wait for the slowest one");
	ct_finding_fix(
		f,
		"copy the data to a local disk of each node and set data.dir to it; `ctrain bench loader CONFIG` measures the loader");
}

void ct__check_shared(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (n->run_sharing != CT_SHARING_NO)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_IO, n);

	ct_finding_what(f, "the run directory %s is not the one of node 0 (%s)", n->run_dir, first->host);
	ct_finding_why(f, "training refuses to start: this node would not find the checkpoints of the run");
	ct_finding_fix(f, "set run.dir to a directory of a file system that all nodes mount");
}

void ct__check_locks(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	if (n->run_sharing != CT_SHARING_NO_LOCK)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_IO, n);

	ct_finding_what(f, "the lock that node 0 (%s) holds in the run directory %s has no effect here", first->host,
			n->run_dir);
	ct_finding_why(f, "two runs on different hosts could write to the same run directory at once");
	ct_finding_fix(
		f, "mount the file system with locks: NFS without nolock and local_lock=flock, Lustre with -o flock");
}

void ct__check_data(const struct ct_facts *n, struct ct_findings *out)
{
	if (!n->data_error[0])
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, (enum ct_status)n->data_status, n);

	ct_finding_what(f, "%s", n->data_error);
	ct_finding_why(f, "the ranks of this node cannot read their samples");
	ct_finding_fix(f, "copy the data to this node, mount it, or set data.dir to a directory that all nodes have");
}
