/* The identity for every launcher and every contradiction, Slurm's lists, and init URLs. */
#include "dist/rendezvous/rendezvous.h"

#include "base/log.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/nodelist_impl.h"
#include "tests/base/check.h"

/* "NAME=value" strings, NULL at the end. */
static const char *get(const char *name, void *user)
{
	size_t n = strlen(name);

	for (const char *const *e = user; *e; e++) {
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			return *e + n + 1;
	}
	return NULL;
}

struct good {
	const char *env[16];
	const char *override;
	struct ct_identity want;
};

static const struct good good[] = {
	{{NULL}, NULL, {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{NULL}, "file:///a/b", {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "file:///a/b", "", 0}},
	{{"MASTER_ADDR=h", "MASTER_PORT=1"}, NULL, {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{"CTRAIN_STORE=10.0.0.1:4000", "CTRAIN_RUN_ID=r", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
	  "LOCAL_WORLD_SIZE=4", "CTRAIN_NODE_RANK=1", "CTRAIN_N_NODES=2", "MASTER_ADDR=x", "MASTER_PORT=7"},
	 "tcp://other:9",
	 {CT_LAUNCHER_CTRAIN, 5, 8, 1, 4, 1, 2, "store://10.0.0.1:4000", "r", 0}},
	{{"CTRAIN_STORE=[::1]:4000", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
	  "CTRAIN_RESTART=2"},
	 NULL,
	 {CT_LAUNCHER_CTRAIN, 0, 1, 0, 1, 0, 1, "store://[::1]:4000", "", 2}},
	{{"TORCHELASTIC_RUN_ID=none", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
	  "GROUP_WORLD_SIZE=1", "MASTER_ADDR=localhost", "MASTER_PORT=29500", "TORCHELASTIC_RESTART_COUNT=3"},
	 NULL,
	 {CT_LAUNCHER_TORCHRUN, 1, 2, 1, 2, 0, 1, "tcp://localhost:26500", "none", 3}},
	{{"TORCHELASTIC_RUN_ID=x", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65535"},
	 "env://",
	 {CT_LAUNCHER_TORCHRUN, 0, 2, -1, -1, -1, -1, "tcp://h:24665", "x", 0}},
	{{"RANK=2", "WORLD_SIZE=3", "MASTER_ADDR=fe80::1", "MASTER_PORT=80"},
	 NULL,
	 {CT_LAUNCHER_ENV, 2, 3, -1, -1, -1, -1, "tcp://[fe80::1]:80", "", 0}},
	{{"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=h", "MASTER_PORT=80"},
	 NULL,
	 {CT_LAUNCHER_ENV, 2, 3, 2, 3, 0, 1, "tcp://h:80", "", 0}},
	{{"RANK=0", "WORLD_SIZE=2"}, "tcp://h:81", {CT_LAUNCHER_ENV, 0, 2, -1, -1, -1, -1, "tcp://h:81", "", 0}},
	{{"RANK=0", "WORLD_SIZE=2"}, "file:///m", {CT_LAUNCHER_ENV, 0, 2, -1, -1, -1, -1, "file:///m", "", 0}},
	{{"RANK=0", "WORLD_SIZE=1"}, NULL, {CT_LAUNCHER_ENV, 0, 1, 0, 1, 0, 1, "tcp://127.0.0.1:29500", "", 0}},
	/* A pod of a PyTorchJob is a node and no rank, but torchrun's ranks inherit its variables. */
	{{"RANK=1", "WORLD_SIZE=16", "MASTER_ADDR=h", "MASTER_PORT=23456", "PET_NODE_RANK=1", "PET_NNODES=2"},
	 NULL,
	 {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{"TORCHELASTIC_RUN_ID=r", "PET_NODE_RANK=1", "RANK=8", "WORLD_SIZE=16", "MASTER_ADDR=h", "MASTER_PORT=80"},
	 NULL,
	 {CT_LAUNCHER_TORCHRUN, 8, 16, -1, -1, -1, -1, "tcp://h:23520", "r", 0}},
	{{"CTRAIN_STORE=10.0.0.1:4000", "PET_NODE_RANK=1", "RANK=8", "WORLD_SIZE=16", "LOCAL_RANK=0",
	  "LOCAL_WORLD_SIZE=8", "CTRAIN_NODE_RANK=1", "CTRAIN_N_NODES=2"},
	 NULL,
	 {CT_LAUNCHER_CTRAIN, 8, 16, 0, 8, 1, 2, "store://10.0.0.1:4000", "", 0}},
	/* Slurm: the first host of the step, the port from the job; node 1 of "2(x2),1" has two tasks. */
	{{"SLURM_STEP_NUM_TASKS=5", "SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=3",
	  "SLURM_STEP_TASKS_PER_NODE=2(x2),1", "SLURM_JOB_ID=123456", "SLURM_STEP_ID=2", "SLURM_STEP_NODELIST=n[07-09]",
	  "SLURM_RESTART_COUNT=1"},
	 NULL,
	 {CT_LAUNCHER_SLURM, 3, 5, 1, 2, 1, 3, "tcp://n07:23651", "slurm-123456.2", 1}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_STEP_NUM_NODES=2",
	  "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "MASTER_ADDR=ib0.n1",
	  "MASTER_PORT=5000"},
	 NULL,
	 {CT_LAUNCHER_SLURM, 0, 2, 0, 1, 0, 2, "tcp://ib0.n1:5000", "slurm-7.0", 0}},
	/* WORLD_SIZE and MASTER_PORT exported by the batch script, as in tutorials. */
	{{"SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_LOCALID=0", "SLURM_NODEID=1",
	  "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=a,b",
	  "WORLD_SIZE=4", "MASTER_PORT=12345"},
	 NULL,
	 {CT_LAUNCHER_SLURM, 2, 4, 0, 2, 1, 2, "tcp://a:12345", "slurm-7.0", 0}},
	/* One task per node, which may start as many ranks as WORLD_SIZE requires. */
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NODEID=1",
	  "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_ID=8", "SLURM_STEP_NODELIST=a,b",
	  "WORLD_SIZE=4"},
	 NULL,
	 {CT_LAUNCHER_SLURM, 1, 2, 0, 1, 1, 2, "tcp://a:20064", "slurm-8.0", 0}},
	/* A step that does not count its tasks: SLURM_NTASKS does, and never against SLURM_STEP_NUM_TASKS. */
	{{"SLURM_STEP_ID=1", "SLURM_PROCID=2", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=1",
	  "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=a,b"},
	 NULL,
	 {CT_LAUNCHER_SLURM, 2, 4, 0, 2, 1, 2, "tcp://a:20057", "slurm-7.1", 0}},
	{{"SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7"},
	 NULL,
	 {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=a"},
	 NULL,
	 {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	/* A batch shell and an interactive step are no workers; a step with RANK that agrees is what RANK says. */
	{{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7", "SLURM_NODELIST=a,b"},
	 NULL,
	 {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_STEP_NODELIST=a", "SLURM_JOB_ID=7"},
	 NULL,
	 {CT_LAUNCHER_NONE, 0, 1, 0, 1, 0, 1, "", "", 0}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=5"},
	 NULL,
	 {CT_LAUNCHER_ENV, 1, 2, -1, -1, -1, -1, "tcp://h:5", "", 0}},
	/* torchrun once per node under srun: its ranks are not Slurm's. */
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "TORCHELASTIC_RUN_ID=j", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
	  "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=5"},
	 NULL,
	 {CT_LAUNCHER_TORCHRUN, 5, 8, 1, 4, 1, 2, "tcp://h:23595", "j", 0}},
	/* mpirun, here inside a Slurm job that started its daemons. */
	{{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
	  "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_PORT=4000", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3"},
	 NULL,
	 {CT_LAUNCHER_MPI, 1, 2, 1, 2, 0, 1, "tcp://127.0.0.1:4000", "", 0}},
	{{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
	  "OMPI_COMM_WORLD_LOCAL_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=4000", "PMIX_NAMESPACE=17"},
	 NULL,
	 {CT_LAUNCHER_MPI, 1, 2, 0, 1, -1, -1, "tcp://a:4000", "mpi-17", 0}},
	{{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"},
	 NULL,
	 {CT_LAUNCHER_MPI, 0, 2, 0, 2, 0, 1, "tcp://127.0.0.1:29500", "", 0}},
};

static void test_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(good); i++) {
		const struct ct_identity *w = &good[i].want;
		struct ct_identity id;

		if (ct_identity_detect(get, (void *)good[i].env, good[i].override, &id) != CT_OK)
			fail_msg("case %zu: %s", i, ct_error_message());
		if (id.by != w->by || id.rank != w->rank || id.world != w->world || id.local_rank != w->local_rank ||
		    id.local_world != w->local_world || id.node != w->node || id.n_nodes != w->n_nodes ||
		    id.restart != w->restart || strcmp(id.init, w->init) != 0 || strcmp(id.run_id, w->run_id) != 0)
			fail_msg("case %zu: %s rank %d/%d local %d/%d node %d/%d init %s run \"%s\" restart %d", i,
				 ct_launcher_name(id.by), id.rank, id.world, id.local_rank, id.local_world, id.node,
				 id.n_nodes, id.init, id.run_id, id.restart);
	}
}

struct bad {
	const char *env[12];
	const char *override;
	const char *say[2];
};

#define MEET "MASTER_ADDR=h", "MASTER_PORT=5"

static const struct bad bad[] = {
	{{"RANK=2", "WORLD_SIZE=2", MEET}, NULL, {"RANK=2 and WORLD_SIZE=2", NULL}},
	{{"RANK=1"}, NULL, {"RANK is set, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not", NULL}},
	{{"RANK=1", MEET}, NULL, {"RANK is set, but WORLD_SIZE is not", NULL}},
	{{"RANK=1"}, "tcp://h:1", {"RANK is set, but WORLD_SIZE is not", NULL}},
	{{"RANK=1"}, "env://", {"RANK is set, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not", NULL}},
	{{"WORLD_SIZE=2"}, NULL, {"WORLD_SIZE is set, but RANK, MASTER_ADDR and MASTER_PORT are not", NULL}},
	{{"RANK=x", "WORLD_SIZE=2", MEET}, NULL, {"RANK is \"x\"", NULL}},
	{{"RANK=", "WORLD_SIZE=2", MEET}, NULL, {"RANK is \"\"", NULL}},
	{{"RANK=-1", "WORLD_SIZE=2", MEET}, NULL, {"RANK is \"-1\"", NULL}},
	{{"RANK=0", "WORLD_SIZE=99999999999999999999", MEET}, NULL, {"WORLD_SIZE", NULL}},
	{{"RANK=0", "WORLD_SIZE=0", MEET}, NULL, {"RANK=0 and WORLD_SIZE=0", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1", MEET},
	 NULL,
	 {"LOCAL_RANK=1 and LOCAL_WORLD_SIZE=1", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4", MEET},
	 NULL,
	 {"LOCAL_WORLD_SIZE=4 and WORLD_SIZE=2", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=1", MEET}, NULL, {"LOCAL_RANK=1 and RANK=0", NULL}},
	{{"RANK=0", "WORLD_SIZE=2"}, NULL, {"MASTER_ADDR and MASTER_PORT are not", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h"}, NULL, {"MASTER_PORT is not", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=0"}, NULL, {"MASTER_PORT is \"0\"", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65536"}, NULL, {"MASTER_PORT is \"65536\"", NULL}},
	{{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=5"}, NULL, {"MASTER_ADDR is set but empty", NULL}},
	{{"RANK=0", "WORLD_SIZE=2"}, "tcp://h", {"tcp://h", "port is missing"}},
	{{"RANK=0", "WORLD_SIZE=2"}, "store://h:1", {"launcher", NULL}},
	{{NULL}, "nfs://h", {"unknown scheme", NULL}},
	{{"CTRAIN_STORE=h", "RANK=0", "WORLD_SIZE=2"}, NULL, {"CTRAIN_STORE", "port is missing"}},
	{{"CTRAIN_STORE=h:1", "WORLD_SIZE=2"}, NULL, {"WORLD_SIZE is set, but RANK is not", NULL}},
	{{"CTRAIN_STORE=h:1"}, NULL, {"CTRAIN_STORE is set, but RANK is not", NULL}},
	{{"CTRAIN_STORE=h:1", "RANK=0", "WORLD_SIZE=2", "CTRAIN_NODE_RANK=2", "CTRAIN_N_NODES=2"},
	 NULL,
	 {"CTRAIN_NODE_RANK=2 and CTRAIN_N_NODES=2", NULL}},
	{{"CTRAIN_STORE=h:1", "RANK=0", "WORLD_SIZE=2", "CTRAIN_NODE_RANK=0", "CTRAIN_N_NODES=3"},
	 NULL,
	 {"CTRAIN_N_NODES=3 and WORLD_SIZE=2", NULL}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "RANK=1", "WORLD_SIZE=2", MEET},
	 NULL,
	 {"RANK=1 and SLURM_PROCID=0", NULL}},
	{{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "RANK=1", "WORLD_SIZE=2", MEET},
	 NULL,
	 {"WORLD_SIZE=2 and SLURM_STEP_NUM_TASKS=4", NULL}},
	{{"SLURM_STEP_ID=0", "SLURM_NTASKS=4", "SLURM_PROCID=1", "RANK=1", "WORLD_SIZE=2", MEET},
	 NULL,
	 {"WORLD_SIZE=2 and SLURM_NTASKS=4", NULL}},
	{{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "RANK=1", "WORLD_SIZE=2", MEET},
	 NULL,
	 {"RANK=1 and OMPI_COMM_WORLD_RANK=0", NULL}},
	{{"SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=a,b", "SLURM_JOB_ID=7",
	  "WORLD_SIZE=8"},
	 NULL,
	 {"WORLD_SIZE=8 and SLURM_STEP_NUM_TASKS=4", NULL}},
	/* torchrun in each of two tasks on two nodes. */
	{{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "TORCHELASTIC_RUN_ID=j", "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1",
	  "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "GROUP_WORLD_SIZE=2", MEET},
	 NULL,
	 {"4 tasks, and each of them has started torchrun, which expects 2 nodes", NULL}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"}, NULL, {"SLURM_STEP_NODELIST", NULL}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_STEP_NODELIST=n[1-"}, NULL, {"n[1-", NULL}},
	{{"SLURM_STEP_NUM_TASKS=2"}, NULL, {"SLURM_PROCID", NULL}},
	{{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_NODEID=5", "SLURM_STEP_TASKS_PER_NODE=1(x2)"},
	 NULL,
	 {"1(x2)", NULL}},
	{{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
	  "OMPI_COMM_WORLD_LOCAL_SIZE=1"},
	 NULL,
	 {"MASTER_ADDR", NULL}},
	{{"PMI_RANK=1"}, NULL, {"PMI_SIZE", NULL}},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		struct ct_identity id;

		if (ct_identity_detect(get, (void *)bad[i].env, bad[i].override, &id) != CT_USAGE)
			fail_msg("case %zu is not refused", i);
		for (int k = 0; k < 2 && bad[i].say[k]; k++) {
			if (!strstr(ct_error_message(), bad[i].say[k]))
				fail_msg("case %zu: \"%s\" does not hold \"%s\"", i, ct_error_message(), bad[i].say[k]);
		}
	}
}

/* The same job gives all its ranks one port, other jobs most likely another. */
static void test_mpi_port(void **state)
{
	const char *a[] = {"OMPI_COMM_WORLD_RANK=0",       "OMPI_COMM_WORLD_SIZE=2",    "OMPI_COMM_WORLD_LOCAL_RANK=0",
			   "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=3526295553", NULL};
	const char *b[] = {"OMPI_COMM_WORLD_RANK=1",       "OMPI_COMM_WORLD_SIZE=2",    "OMPI_COMM_WORLD_LOCAL_RANK=1",
			   "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=3526295553", NULL};
	const char *c[] = {"OMPI_COMM_WORLD_RANK=1",       "OMPI_COMM_WORLD_SIZE=2",    "OMPI_COMM_WORLD_LOCAL_RANK=1",
			   "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=3526295554", NULL};
	struct ct_identity x, y, z;

	(void)state;
	assert_ok(ct_identity_detect(get, (void *)a, NULL, &x));
	assert_ok(ct_identity_detect(get, (void *)b, NULL, &y));
	assert_ok(ct_identity_detect(get, (void *)c, NULL, &z));
	assert_string_equal(x.init, y.init);
	assert_string_not_equal(x.init, z.init);
}

static void expect_list(const char *text, const char *joined)
{
	struct ct_str s = {0};
	char **names;
	size_t n;

	assert_ok(ct__nodelist_expand(text, 100, &names, &n));
	for (size_t i = 0; i < n; i++)
		ct_str_addf(&s, "%s%s", i ? " " : "", names[i]);
	assert_string_equal(ct_str_text(&s), joined);
	ct_str_release(&s);
	ct__nodelist_free(names, n);
}

static void test_row_101_nodelist(void **state)
{
	static const char *const broken[] = {"",
					     ",",
					     "a,",
					     "a,,b",
					     "n[",
					     "n[]",
					     "n]",
					     "n[1",
					     "n[1-]",
					     "n[-1]",
					     "n[1,]",
					     "n[,1]",
					     "n[3-1]",
					     "n[1-2-3]",
					     "n[a-b]",
					     "n[1]]",
					     "n[[1]]",
					     "n[1 2]",
					     "n[1-200]",
					     "n[1-99999999999]",
					     "[1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2][1-2]"};
	char **names, longer[600];
	size_t n;

	(void)state;
	expect_list("a", "a");
	expect_list("a,b", "a b");
	expect_list("n[1-3,7]", "n1 n2 n3 n7");
	expect_list("n[08-11]", "n08 n09 n10 n11");
	expect_list("login,n[1-2]-ib,gpu3", "login n1-ib n2-ib gpu3");
	expect_list("r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4");
	expect_list("[1-2]", "1 2");
	for (size_t i = 0; i < CT_ARRAY_LEN(broken); i++) {
		if (ct__nodelist_expand(broken[i], 100, &names, &n) != CT_USAGE)
			fail_msg("\"%s\" is not refused", broken[i]);
	}
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(ct__nodelist_expand(longer, 100, &names, &n), CT_USAGE);
}

static void test_row_103_countlist(void **state)
{
	static const char *const broken[] = {"x", "2(", "2(x", "2(x3", "2(x0)", "2(3)", "2;1", "-1", "2(x3)4"};
	int v = -1;

	(void)state;
	assert_ok(ct__countlist_at("2(x3),1", 0, &v));
	assert_int_equal(v, 2);
	assert_ok(ct__countlist_at("2(x3),1", 2, &v));
	assert_int_equal(v, 2);
	assert_ok(ct__countlist_at("2(x3),1", 3, &v));
	assert_int_equal(v, 1);
	assert_fails(ct__countlist_at("2(x3),1", 4, &v), CT_USAGE, "no entry 4");
	for (size_t i = 0; i < CT_ARRAY_LEN(broken); i++) {
		if (ct__countlist_at(broken[i], 5, &v) != CT_USAGE)
			fail_msg("\"%s\" is not refused", broken[i]);
	}
}

static void test_urls(void **state)
{
	static const char *const broken[] = {"",
					     "h:1",
					     "://h:1",
					     "tcp://",
					     "tcp://h",
					     "tcp://h:",
					     "tcp://:1",
					     "tcp://h:0",
					     "tcp://h:1x",
					     "tcp://a b:1",
					     "tcp://u@h:1",
					     "tcp://h/x:1",
					     "tcp://::1:5",
					     "tcp://[::1",
					     "tcp://[::1]",
					     "tcp://[]:1",
					     "tcp://[::1]x:1",
					     "file://",
					     "file://rel",
					     "file:///",
					     "file:///dir/",
					     "env://x",
					     "TCP://h:1",
					     "averyveryverylongscheme://h:1"};
	struct ct_init_url u;

	(void)state;
	assert_ok(ct__init_url_parse("tcp://node-1.x:65535", &u));
	assert_int_equal(u.scheme, CT_INIT_TCP);
	assert_string_equal(u.host, "node-1.x");
	assert_int_equal(u.port, 65535);
	assert_ok(ct__init_url_parse("tcp://[fe80::1%eth0]:1", &u));
	assert_string_equal(u.host, "fe80::1%eth0");
	assert_ok(ct__init_url_parse("file:///tmp/a b", &u));
	assert_string_equal(u.path, "/tmp/a b");
	assert_ok(ct__init_url_parse("env://", &u));
	for (size_t i = 0; i < CT_ARRAY_LEN(broken); i++) {
		if (ct__init_url_parse(broken[i], &u) != CT_USAGE)
			fail_msg("\"%s\" is not refused", broken[i]);
	}
	assert_int_equal(ct__init_url_parse("tcq://h:1", &u), CT_USAGE);
	assert_non_null(strstr(ct_error_hint_text(), "did you mean tcp"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_mpi_port),
		cmocka_unit_test(test_row_101_nodelist),
		cmocka_unit_test(test_row_103_countlist),
		cmocka_unit_test(test_urls),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
