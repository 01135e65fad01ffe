/* Where the ranks of a run meet, and the name of the run, for each launcher. All ranks must derive the same address
 * from what the launcher supplies, without communication. Ports are computed from the number of the job, so that jobs
 * on the same node and restarts of a job use different ones; they are below the ports that the system gives to outgoing
 * connections. With torchrun, its own store has MASTER_PORT, so another port is derived from it. MASTER_ADDR,
 * MASTER_PORT and an init URL replace what would be derived. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "dist/rendezvous/identity_impl.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/nodelist_impl.h"
#include "dist/store/wire.h"

#define MAX_NODES 65536
#define DEFAULT_PORT 29500 /* the same as PyTorch's */
#define PORT_BASE 20000
#define PORT_SPAN 12000 /* the ports that the system gives to outgoing connections begin at 32768 */
#define PORTS_PER_JOB 8 /* for job steps and restarts */
#define TORCHRUN_PORT_BASE 20000
#define TORCHRUN_PORT_SPAN 9000
#define TORCHRUN_PORT_STEP 7919 /* a prime that does not divide the span, so all ports of the range are used */

static enum ct_status master_port(const struct ct__env *e, int fallback, int *port)
{
	const char *text = ct__env_value(e, "MASTER_PORT");

	*port = fallback;
	return text ? ct__init_port_parse(text, "MASTER_PORT", port) : CT_OK;
}

static enum ct_status meet(const struct ct__env *e, struct ct_identity *id, const char *fallback_host, int port)
{
	const char *addr = ct__env_value(e, "MASTER_ADDR");

	if (addr && addr[0] == '\0')
		return CT_FAIL(CT_USAGE, "MASTER_ADDR is set but empty");
	return ct__init_url_make(id->init, sizeof(id->init), "tcp", addr ? addr : fallback_host, port);
}

/* torchrun's own store listens on MASTER_PORT, and users give successive ports to jobs on the same host. So successive
 * ports are mapped to ports that are far apart. The range is below the usual ports of torchrun (29400, 29500) and the
 * ports that Linux gives to clients (from 32768). */
static int beside_torchrun(int master_port)
{
	return TORCHRUN_PORT_BASE + (int)((int64_t)master_port * TORCHRUN_PORT_STEP % TORCHRUN_PORT_SPAN);
}

static enum ct_status meet_env(const struct ct__env *e, struct ct_identity *id)
{
	int port;

	if (!ct__env_value(e, "MASTER_ADDR") || !ct__env_value(e, "MASTER_PORT")) {
		if (id->world == 1)
			return ct__init_url_make(id->init, sizeof(id->init), "tcp", "127.0.0.1", DEFAULT_PORT);
		return ct__env_some_missing(e, "WORLD_SIZE", (const char *const[]){"MASTER_ADDR", "MASTER_PORT"}, 2);
	}
	CT_TRY(master_port(e, 0, &port));
	if (id->by == CT_LAUNCHER_TORCHRUN)
		port = beside_torchrun(port);
	return meet(e, id, NULL, port);
}

/* Jobs with consecutive ids may run on the same node, and a restarted job may find its earlier port in use. */
static int slurm_port(int job, int step, int restart)
{
	return PORT_BASE +
	       (job % PORT_SPAN * PORTS_PER_JOB + (step % PORTS_PER_JOB + restart) % PORTS_PER_JOB) % PORT_SPAN;
}

static enum ct_status meet_slurm(const struct ct__env *e, struct ct_identity *id)
{
	const char *list = ct__env_value(e, "SLURM_STEP_NODELIST");
	int job = 0, step = 0, port;
	char **names = NULL;
	size_t n = 0;
	enum ct_status st;

	CT_TRY(ct__env_int(e, "SLURM_JOB_ID", &job));
	CT_TRY(ct__env_int(e, "SLURM_STEP_ID", &step));
	CT_TRY(master_port(e, slurm_port(job, step, id->restart), &port));
	if (!list)
		list = ct__env_value(e, "SLURM_JOB_NODELIST");
	if (!list && !ct__env_value(e, "MASTER_ADDR"))
		return ct__env_half_set("SLURM_PROCID", "SLURM_STEP_NODELIST");
	if (list)
		CT_TRY(ct__nodelist_expand(list, MAX_NODES, &names, &n));
	st = meet(e, id, n > 0 ? names[0] : NULL, port);
	ct__nodelist_free(names, n);
	return st;
}

static enum ct_status meet_mpi(const struct ct__env *e, struct ct_identity *id)
{
	const char *job = ct__env_value(e, "PMIX_NAMESPACE");
	bool one_host = id->local_world == id->world;
	int port;

	if (!job)
		job = ct__env_value(e, "OMPI_MCA_ess_base_jobid");
	CT_TRY(master_port(e, job ? PORT_BASE + (int)(ct_hash64(job, strlen(job)) % PORT_SPAN) : DEFAULT_PORT, &port));
	if (!one_host && !ct__env_value(e, "MASTER_ADDR")) {
		CT_FAIL(CT_USAGE,
			"mpirun started %d ranks on several hosts, but MASTER_ADDR, the host of rank 0, is not set",
			id->world);
		return ct_error_hint(
			"set it to the host of rank 0: -x MASTER_ADDR=HOST (Open MPI) or -genv MASTER_ADDR HOST (MPICH)");
	}
	return meet(e, id, "127.0.0.1", port);
}

enum ct_status ct__identity_meet(const struct ct__env *e, const char *override, struct ct_identity *id)
{
	struct ct_init_url url;
	char text[300];

	if (id->by == CT_LAUNCHER_CTRAIN) {
		snprintf(text, sizeof(text), "store://%s", ct__env_value(e, "CTRAIN_STORE"));
		if (ct__init_url_parse(text, &url) != CT_OK)
			return ct_error_wrap("CTRAIN_STORE");
		return ct__init_url_make(id->init, sizeof(id->init), "store", url.host, url.port);
	}
	if (override) {
		CT_TRY(ct__init_url_parse(override, &url));
		if (url.scheme == CT_INIT_STORE)
			return CT_FAIL(CT_USAGE, "init URL \"%.200s\": only ctrain's own launcher can use store://",
				       override);
		if (url.scheme != CT_INIT_ENV) {
			ct_wire_copy(id->init, sizeof(id->init), override);
			return CT_OK;
		}
	}
	switch (id->by) {
	case CT_LAUNCHER_SLURM:
		return meet_slurm(e, id);
	case CT_LAUNCHER_MPI:
		return meet_mpi(e, id);
	default:
		return meet_env(e, id);
	}
}

void ct__identity_name_run(const struct ct__env *e, struct ct_identity *id)
{
	const char *own = ct__env_value(e, "CTRAIN_RUN_ID"), *torch = ct__env_value(e, "TORCHELASTIC_RUN_ID");
	const char *job = ct__env_value(e, "SLURM_JOB_ID"), *step = ct__env_value(e, "SLURM_STEP_ID"),
		   *mpi = ct__env_value(e, "PMIX_NAMESPACE");

	if (own)
		ct_wire_copy(id->run_id, sizeof(id->run_id), own);
	else if (id->by == CT_LAUNCHER_TORCHRUN)
		ct_wire_copy(id->run_id, sizeof(id->run_id), torch);
	else if (id->by == CT_LAUNCHER_SLURM && job)
		snprintf(id->run_id, sizeof(id->run_id), "slurm-%.30s.%.20s", job, step ? step : "0");
	else if (id->by == CT_LAUNCHER_MPI && mpi)
		snprintf(id->run_id, sizeof(id->run_id), "mpi-%.50s", mpi);
}
