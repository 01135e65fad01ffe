/* Limits of processes, and CPUs. A fact of -1 is unknown and passes. The advice differs in a container, whose limits
 * are set when it is started, and where the limits of the host do not help. */
#include <string.h>

#include "trainer/tools/doctor/checks_impl.h"

#define LOCKED_NEEDED ((int64_t)64 << 20) /* pinned memory for NCCL's proxies and for InfiniBand */

void ct__check_files(const struct ct_facts *n, struct ct_findings *out)
{
	if (n->open_files_most < 0 || n->open_files_most >= n->open_files_needed)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_NOMEM, n);

	ct_finding_what(f, "the limit of open files is %lld, but %lld rank%s here need %lld",
			(long long)n->open_files_most, (long long)n->ranks, ct_plural(n->ranks),
			(long long)n->open_files_needed);
	ct_finding_why(f, "ranks would fail with \"Too many open files\" when they connect or open data");
	ct_finding_fix(f, n->in_container
				  ? "start the container with --ulimit nofile=4096:4096"
				  : "ulimit -Hn 4096 as root, or LimitNOFILE=4096 in the service (Slurm: of slurmd)");
}

void ct__check_locked(const struct ct_facts *n, struct ct_findings *out)
{
	if (strcmp(n->device, "cuda") != 0 || n->locked_bytes < 0 || n->locked_bytes >= LOCKED_NEEDED)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_NOMEM, n);

	ct_finding_what(f, "the limit of locked memory is %lld KiB", (long long)(n->locked_bytes >> 10));
	ct_finding_why(
		f,
		"NCCL cannot register memory with InfiniBand adapters: \"ibv_reg_mr failed\" or \"Cannot allocate memory\"");
	ct_finding_fix(
		f,
		n->in_container
			? "start the container with --ulimit memlock=-1"
			: "ulimit -l unlimited; for Slurm, LimitMEMLOCK=infinity in slurmd.service and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf");
}

void ct__check_shm(const struct ct_facts *n, struct ct_findings *out)
{
	if (n->shm_bytes < 0 || n->shm_bytes >= n->shm_needed)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_NOMEM, n);

	ct_finding_what(f, "/dev/shm has %lld MiB free, but %lld ranks here need %lld MiB",
			(long long)(n->shm_bytes >> 20), (long long)n->ranks, (long long)(n->shm_needed >> 20));
	ct_finding_why(
		f,
		"NCCL and MPI connect ranks on the same host through files in /dev/shm: \"Error while creating shared memory segment\"");
	ct_finding_fix(f, n->in_container ? "start the container with --shm-size=1g, or with --ipc=host"
					  : "mount -o remount,size=1g /dev/shm, or remove old files in it");
}

void ct__check_cpus(const struct ct_facts *n, struct ct_findings *out)
{
	if (n->cpus <= 0 || n->threads * n->ranks <= n->cpus)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_CONFIG, n);

	ct_finding_what(f, "%lld rank%s with %lld compute thread%s each share %lld CPU%s", (long long)n->ranks,
			ct_plural(n->ranks), (long long)n->threads, ct_plural(n->threads), (long long)n->cpus,
			ct_plural(n->cpus));
	ct_finding_why(f, "threads that wait for a CPU delay the other ranks in every step");
	ct_finding_fix(
		f,
		"use --procs %lld or launch.threads=auto; if the host has more CPUs, allow them: srun --cpus-per-task, docker run --cpus",
		(long long)(n->cpus / n->threads > 0 ? n->cpus / n->threads : 1));
}
