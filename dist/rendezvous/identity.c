/* The table of launchers is in order of precedence, because launchers are nested: a worker of ctrain inherits the
 * variables of the torchrun, mpirun or Slurm step in which ctrain was started, and mpirun in a Slurm job those of
 * Slurm. The one that has started this process itself must be found first. Variables that are set although no launcher
 * has started ranks, such as those of a batch script or of an interactive step with one task, must not count
 * (started_by).
 *
 * A rank with a wrong number would wait forever for others, so contradictions are errors, and names that are almost
 * right cause a warning. Values that the launcher does not supply remain -1 until the handshake, which knows all
 * ranks. */
#define CT_LOG_COMPONENT "dist"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dist/rendezvous/identity_impl.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/nodelist_impl.h"
#include "dist/store/wire.h"

/* The environment variables of a launcher. NULL: it has none for this value. */
struct source {
	enum ct_launcher by;
	const char *sign[2]; /* if one of them is set, this launcher has started the process */
	const char *rank, *world, *local_rank, *local_world, *node, *n_nodes, *restart;
};

/* In order of precedence. */
static const struct source sources[] = {
	{CT_LAUNCHER_CTRAIN,
	 {"CTRAIN_STORE", NULL},
	 "RANK",
	 "WORLD_SIZE",
	 "LOCAL_RANK",
	 "LOCAL_WORLD_SIZE",
	 "CTRAIN_NODE_RANK",
	 "CTRAIN_N_NODES",
	 "CTRAIN_RESTART"},
	{CT_LAUNCHER_TORCHRUN,
	 {"TORCHELASTIC_RUN_ID", NULL},
	 "RANK",
	 "WORLD_SIZE",
	 "LOCAL_RANK",
	 "LOCAL_WORLD_SIZE",
	 "GROUP_RANK",
	 "GROUP_WORLD_SIZE",
	 "TORCHELASTIC_RESTART_COUNT"},
	{CT_LAUNCHER_ENV,
	 {"RANK", "WORLD_SIZE"},
	 "RANK",
	 "WORLD_SIZE",
	 "LOCAL_RANK",
	 "LOCAL_WORLD_SIZE",
	 NULL,
	 NULL,
	 "CTRAIN_RESTART"},
	{CT_LAUNCHER_MPI,
	 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	 "OMPI_COMM_WORLD_RANK",
	 "OMPI_COMM_WORLD_SIZE",
	 "OMPI_COMM_WORLD_LOCAL_RANK",
	 "OMPI_COMM_WORLD_LOCAL_SIZE",
	 NULL,
	 NULL,
	 NULL},
	{CT_LAUNCHER_SLURM,
	 {"SLURM_STEP_NUM_TASKS", NULL},
	 "SLURM_PROCID",
	 "SLURM_STEP_NUM_TASKS",
	 "SLURM_LOCALID",
	 NULL,
	 "SLURM_NODEID",
	 "SLURM_STEP_NUM_NODES",
	 "SLURM_RESTART_COUNT"},
	{CT_LAUNCHER_SLURM,
	 {"SLURM_NTASKS", NULL},
	 "SLURM_PROCID",
	 "SLURM_NTASKS",
	 "SLURM_LOCALID",
	 NULL,
	 "SLURM_NODEID",
	 "SLURM_STEP_NUM_NODES",
	 "SLURM_RESTART_COUNT"},
	{CT_LAUNCHER_MPI,
	 {"PMI_RANK", "PMI_SIZE"},
	 "PMI_RANK",
	 "PMI_SIZE",
	 "MPI_LOCALRANKID",
	 "MPI_LOCALNRANKS",
	 NULL,
	 NULL,
	 NULL},
};

const char *ct_launcher_name(enum ct_launcher l)
{
	static const char *const names[] = {"none", "ctrain", "torchrun", "env", "slurm", "mpi"};

	return names[l];
}

enum ct_status ct__env_int(const struct ct__env *e, const char *name, int *out)
{
	const char *text = ct__env_value(e, name);
	int64_t v;

	if (!text)
		return CT_OK;
	if (ct_parse_i64(text, &v) != CT_OK || v < 0 || v > INT32_MAX) {
		CT_FAIL(CT_USAGE, "%s is \"%.60s\", which is not a non-negative integer", name, text);
		return ct_error_hint("unset %s, or let the launcher set it", name);
	}
	*out = (int)v;
	return CT_OK;
}

static enum ct_status contradiction(const char *a, int va, const char *b, int vb, const char *why)
{
	return CT_FAIL(CT_USAGE, "%s=%d and %s=%d contradict each other: %s", a, va, b, vb, why);
}

/* Lists the names [n] that are not set: "WORLD_SIZE, MASTER_ADDR and MASTER_PORT are". Returns the number of them. */
static int list_missing(const struct ct__env *e, const char *const *names, size_t n, char *buf, size_t len)
{
	size_t at[8], count = 0, used = 0;

	for (size_t i = 0; i < n && count < CT_ARRAY_LEN(at); i++) {
		if (!ct__env_value(e, names[i]))
			at[count++] = i;
	}
	buf[0] = '\0';
	for (size_t i = 0; i < count && used < len; i++)
		used += (size_t)snprintf(buf + used, len - used, "%s%s",
					 i == 0           ? ""
					 : i + 1 == count ? " and "
							  : ", ",
					 names[at[i]]);
	if (used < len)
		snprintf(buf + used, len - used, "%s", count == 1 ? " is" : " are");
	return (int)count;
}

enum ct_status ct__env_some_missing(const struct ct__env *e, const char *have, const char *const *names, size_t n)
{
	char missing[160];

	(void)list_missing(e, names, n, missing, sizeof(missing));
	CT_FAIL(CT_USAGE, "%s is set, but %s not", have, missing);
	return ct_error_hint("set all of them, or unset %s to let ctrain start its own ranks", have);
}

enum ct_status ct__env_half_set(const char *have, const char *missing)
{
	CT_FAIL(CT_USAGE, "%s is set, but %s is not", have, missing);
	return ct_error_hint("set both, or unset %s to let ctrain start its own ranks", have);
}

/* A batch script has SLURM_NTASKS and SLURM_PROCID, too, but is not a step. The task count of a step has precedence. */
static bool is_uncounted_step(const struct ct__env *e)
{
	return !ct__env_value(e, "SLURM_STEP_NUM_TASKS") && ct__env_value(e, "SLURM_STEP_ID") &&
	       ct__env_value(e, "SLURM_PROCID");
}

/* A batch script may export WORLD_SIZE, as many tutorials do, although each task gets its rank from srun. */
static bool is_slurm_task(const struct ct__env *e)
{
	return ct__env_value(e, "SLURM_STEP_ID") && ct__env_value(e, "SLURM_PROCID");
}

static bool started_by(const struct ct__env *e, const struct source *s)
{
	const char *world;

	if (!ct__env_value(e, s->sign[0]) && !ct__env_value(e, s->sign[1]))
		return false;
	if (s->by == CT_LAUNCHER_ENV && !ct__env_value(e, "RANK") && is_slurm_task(e))
		return false;
	if (strcmp(s->sign[0], "SLURM_NTASKS") == 0 && !is_uncounted_step(e))
		return false;
	/* In the pods of Kubeflow's PyTorchJob, RANK is the number of the pod, and ctrain is the launcher. */
	if (s->by == CT_LAUNCHER_ENV && ct__env_value(e, "PET_NODE_RANK"))
		return false;
	/* `srun --pty bash` is a step with one task, and all commands that are typed there inherit its variables. */
	world = s->by == CT_LAUNCHER_SLURM ? ct__env_value(e, s->world) : NULL;
	return !world || (strcmp(world, "1") != 0 && strcmp(world, "0") != 0);
}

/* has_url: an init URL, other than env://, replaces MASTER_*. */
static enum ct_status read_place(const struct ct__env *e, const struct source *s, bool has_url, struct ct_identity *id)
{
	if (s->by == CT_LAUNCHER_ENV && (!ct__env_value(e, s->rank) || !ct__env_value(e, s->world))) {
		const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

		return ct__env_some_missing(e, ct__env_value(e, s->rank) ? s->rank : s->world, names, has_url ? 2 : 4);
	}
	if (!ct__env_value(e, s->rank) || !ct__env_value(e, s->world)) {
		bool both = !ct__env_value(e, s->rank) && !ct__env_value(e, s->world);

		return ct__env_half_set(both                        ? s->sign[0]
					: ct__env_value(e, s->rank) ? s->rank
								    : s->world,
					ct__env_value(e, s->rank) ? s->world : s->rank);
	}
	CT_TRY(ct__env_int(e, s->rank, &id->rank));
	CT_TRY(ct__env_int(e, s->world, &id->world));
	CT_TRY(ct__env_int(e, s->local_rank, &id->local_rank));
	CT_TRY(ct__env_int(e, s->local_world, &id->local_world));
	CT_TRY(ct__env_int(e, s->node, &id->node));
	CT_TRY(ct__env_int(e, s->n_nodes, &id->n_nodes));
	CT_TRY(ct__env_int(e, s->restart, &id->restart));
	if (s->by == CT_LAUNCHER_SLURM && id->node >= 0 && ct__env_value(e, "SLURM_STEP_TASKS_PER_NODE"))
		CT_TRY(ct__countlist_at(ct__env_value(e, "SLURM_STEP_TASKS_PER_NODE"), id->node, &id->local_world));
	return CT_OK;
}

static enum ct_status check_place(const struct source *s, const struct ct_identity *id)
{
	const char *local_world = s->local_world ? s->local_world : "SLURM_STEP_TASKS_PER_NODE";

	if (id->rank >= id->world)
		return contradiction(s->rank, id->rank, s->world, id->world, "ranks start at 0");
	if (id->local_rank >= 0 && id->local_world >= 0 && id->local_rank >= id->local_world)
		return contradiction(s->local_rank, id->local_rank, local_world, id->local_world,
				     "local ranks start at 0");
	if (id->local_world > id->world)
		return contradiction(local_world, id->local_world, s->world, id->world,
				     "a host cannot have more ranks than the run");
	if (id->local_rank > id->rank)
		return contradiction(s->local_rank, id->local_rank, s->rank, id->rank,
				     "local ranks must be in the order of ranks");
	if (id->node >= 0 && id->n_nodes >= 0 && id->node >= id->n_nodes)
		return contradiction(s->node, id->node, s->n_nodes, id->n_nodes, "nodes start at 0");
	if (id->n_nodes > id->world)
		return contradiction(s->n_nodes, id->n_nodes, s->world, id->world,
				     "every node must have at least one rank");
	return CT_OK;
}

/* Detects that RANK was set by hand inside a Slurm step or mpirun that has other values. */
static enum ct_status check_against(const struct ct__env *e, const struct source *s, const struct source *other,
				    const struct ct_identity *id)
{
	int rank = -1, world = -1;

	if (!started_by(e, other))
		return CT_OK;
	CT_TRY(ct__env_int(e, other->rank, &rank));
	CT_TRY(ct__env_int(e, other->world, &world));
	if (rank >= 0 && rank != id->rank)
		return contradiction(s->rank, id->rank, other->rank, rank, "unset one of them");
	if (world >= 0 && world != id->world)
		return contradiction(s->world, id->world, other->world, world, "unset one of them");
	return CT_OK;
}

/* WORLD_SIZE that a batch script has exported must agree with srun, unless the tasks start further ranks. */
static enum ct_status check_exported_world(const struct ct__env *e, const struct source *s,
					   const struct ct_identity *id)
{
	int world = -1;

	CT_TRY(ct__env_int(e, "WORLD_SIZE", &world));
	if (world < 0 || world == id->world || id->world == id->n_nodes)
		return CT_OK;
	(void)contradiction("WORLD_SIZE", world, s->world, id->world, "srun has started another number of ranks");
	ct_error_hint("do not export WORLD_SIZE in the batch script; ctrain reads the number of ranks from srun");
	return CT_USAGE;
}

/* `srun --ntasks-per-node=4 torchrun --nproc_per_node=4` would start 16 ranks on each node. */
static enum ct_status check_double_launch(const struct ct__env *e, const struct ct_identity *id)
{
	int tasks = 0;

	CT_TRY(ct__env_int(e, "SLURM_STEP_NUM_TASKS", &tasks));
	if (tasks < 2 || id->n_nodes < 0 || tasks == id->n_nodes)
		return CT_OK;
	CT_FAIL(CT_USAGE, "srun has started %d tasks, and each of them has started torchrun, which expects %d node%s",
		tasks, id->n_nodes, ct_plural(id->n_nodes));
	return ct_error_hint(
		"use srun without torchrun: srun ctrain CONFIG.yaml; or start torchrun once per node: srun "
		"--ntasks-per-node=1");
}

/* Names that users write instead of the names that programs read. */
static const char *const misspelled[][2] = {
	{"MASTER_IP", "MASTER_ADDR"},
	{"MASTER_HOST", "MASTER_ADDR"},
	{"MASTERADDR", "MASTER_ADDR"},
	{"MASTER_ADDRESS", "MASTER_ADDR"},
	{"MASTERPORT", "MASTER_PORT"},
	{"WORLDSIZE", "WORLD_SIZE"},
	{"WORD_SIZE", "WORLD_SIZE"},
	{"LOCALRANK", "LOCAL_RANK"},
	{"LOCAL_SIZE", "LOCAL_WORLD_SIZE"},
	{"LOCALWORLDSIZE", "LOCAL_WORLD_SIZE"},
	{"CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"},
	{"CUDA_VISABLE_DEVICES", "CUDA_VISIBLE_DEVICES"},
	{"CTRAIN_RANK", "RANK"},
	{"CTRAIN_WORLD_SIZE", "WORLD_SIZE"},
	{"CTRAIN_RUNID", "CTRAIN_RUN_ID"},
};

bool ct_identity_misspelled_at(size_t i, const char **name, const char **meant)
{
	if (i >= CT_ARRAY_LEN(misspelled))
		return false;
	*name = misspelled[i][0];
	*meant = misspelled[i][1];
	return true;
}

static void warn_misspelled(const struct ct__env *e)
{
	const char *name, *meant;

	for (size_t i = 0; ct_identity_misspelled_at(i, &name, &meant); i++) {
		if (ct__env_value(e, name) && !ct__env_value(e, meant))
			CT_WARN("the environment variable %s is set, but nothing reads it; did you mean %s?", name,
				meant);
	}
}

static void default_to(int *field, int v)
{
	if (*field < 0)
		*field = v;
}

/* Fills in the values that follow from the others if all ranks are on one host. */
static void complete(struct ct_identity *id)
{
	if (id->world != 1 && id->local_world != id->world)
		return;
	default_to(&id->local_world, id->world);
	default_to(&id->local_rank, id->rank);
	default_to(&id->n_nodes, 1);
	default_to(&id->node, 0);
}

enum ct_status ct_identity_detect(ct_getenv_fn get, void *user, const char *init_override, struct ct_identity *out)
{
	const struct ct__env e = {get, user};
	struct ct_identity id = {.world = 1, .local_rank = -1, .local_world = -1, .node = -1, .n_nodes = -1};
	const struct source *s = NULL;
	struct ct_init_url url;

	for (size_t i = 0; i < CT_ARRAY_LEN(sources) && !s; i++) {
		if (started_by(&e, &sources[i]))
			s = &sources[i];
	}
	/* Our launcher has already warned. */
	if (!s || s->by != CT_LAUNCHER_CTRAIN)
		warn_misspelled(&e);
	if (!s) {
		complete(&id);
		if (init_override) {
			CT_TRY(ct__init_url_parse(init_override, &url));
			ct_wire_copy(id.init, sizeof(id.init), init_override);
		}
		*out = id;
		return CT_OK;
	}
	id.by = s->by;
	const bool has_url = init_override && strncmp(init_override, "env:", 4) != 0;

	CT_TRY(read_place(&e, s, has_url, &id));
	CT_TRY(check_place(s, &id));
	for (size_t i = 0; i < CT_ARRAY_LEN(sources) && s->by == CT_LAUNCHER_ENV; i++) {
		if (sources[i].by == CT_LAUNCHER_SLURM || sources[i].by == CT_LAUNCHER_MPI)
			CT_TRY(check_against(&e, s, &sources[i], &id));
	}
	if (id.by == CT_LAUNCHER_SLURM)
		CT_TRY(check_exported_world(&e, s, &id));
	if (id.by == CT_LAUNCHER_TORCHRUN)
		CT_TRY(check_double_launch(&e, &id));
	CT_TRY(ct__identity_meet(&e, init_override, &id));
	ct__identity_name_run(&e, &id);
	complete(&id);
	*out = id;
	return CT_OK;
}

int ct_identity_slurm_tasks(ct_getenv_fn get, void *user)
{
	const struct ct__env e = {get, user};
	const char *counts = ct__env_value(&e, "SLURM_STEP_TASKS_PER_NODE");
	int node = -1, tasks = 0;

	if (!counts || ct__env_int(&e, "SLURM_NODEID", &node) < 0 || node < 0 ||
	    ct__countlist_at(counts, node, &tasks) < 0) {
		ct_error_clear();
		return 0;
	}
	return tasks;
}

static const char *process_env(const char *name, void *user)
{
	(void)user;
	return getenv(name);
}

enum ct_status ct_identity_from_env(const char *init_override, struct ct_identity *out)
{
	return ct_identity_detect(process_env, NULL, init_override, out);
}
