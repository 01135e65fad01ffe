/* Slurm's forms of times and jobs, batch scripts, and the CPUs of a task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/job/slurm/job.h"
#include "trainer/launch/slurm/job_status.h"
#include "trainer/launch/slurm/script.h"
#include "trainer/plan/cpus.h"

static void test_times(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds;
	} good[] = {
		{"0:07", 7},         {"1:00", 60},          {"59:59", 3599},          {"1:00:00", 3600},
		{"23:59:59", 86399}, {"1-00:00:00", 86400}, {"12-03:04:05", 1047845}, {"UNLIMITED", CT_SLURM_NO_LIMIT}};
	static const char *const bad[] = {"",   "INVALID", "NOT_SET", "7",     "1-",
					  "1:", "1:2:3:4", "a:00",    "1:00 ", "1-02:03666666666666666666:04"};
	int64_t s;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(good); i++) {
		s = -1;
		assert_int_equal(ct_slurm_parse_time(good[i].text, &s), CT_OK);
		assert_int_equal(s, good[i].seconds);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_int_equal(ct_slurm_parse_time(bad[i], &s), CT_DATA);
}

static const char line[] =
	"JobId=7 ArrayJobId=5 ArrayTaskId=2 JobName=a UserId=root(0) JobState=RUNNING Reason=None Requeue=1 "
	"Restarts=3 RunTime=00:01:00 TimeLimit=01:00:00 ReqNodeList=(null) NodeList=n[1-2] "
	"AdminComment=x Comment=ctrain my runs/x-%a  WorkDir=/no/such StdOut=/no/such/a.log Power=\n";

static void test_fields(void **state)
{
	char v[64];

	(void)state;
	assert_true(ct_slurm_field(line, "JobState", v, sizeof(v)));
	assert_string_equal(v, "RUNNING");
	assert_true(ct_slurm_field(line, "NodeList", v, sizeof(v)));
	assert_string_equal(v, "n[1-2]");
	assert_true(ct_slurm_field(line, "Comment", v, sizeof(v)));
	assert_string_equal(v, "ctrain my runs/x-%a");
	assert_true(ct_slurm_field(line, "JobId", v, sizeof(v)));
	assert_string_equal(v, "7");
	assert_true(ct_slurm_field(line, "Power", v, sizeof(v)));
	assert_string_equal(v, "");
	assert_false(ct_slurm_field(line, "State", v, sizeof(v)));
	assert_string_equal(v, "");
}

static void test_status(void **state)
{
	struct ct_str out = {0};
	ct_json *o = ct_slurm_status(line, 5);

	(void)state;
	ct_slurm_status_text(o, &out);
	assert_string_equal(ct_str_text(&out), "job 5_2 (a): RUNNING for 00:01:00 of 01:00:00 on n[1-2], restarts: 3\n"
					       "  run directory  /no/such/my runs/x-2\n"
					       "  log            /no/such/a.log\n");
	ct_json_destroy(o);
	ct_str_release(&out);
}

static void test_script(void **state)
{
	static const char *const sets[] = {"optim.lr=0.1", "run.name=it's"};
	struct ct_slurm_script s = {.name = "mnist",
				    .command_line = "slurm c.yaml\n#SBATCH --evil",
				    .program = "/opt/my tools/ctrain",
				    .config = "c.yaml",
				    .run_dir = "runs/mnist",
				    .sets = sets,
				    .n_sets = 2,
				    .nodes = 2,
				    .tasks = 4,
				    .time = "1:00:00"};
	static const char *const bad[] = {"", "1 2", "1\n2", "\"1", "1'", "1\\"};
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(strstr(ct_str_text(&out), "\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4 "));
	assert_null(strstr(ct_str_text(&out), "\n#SBATCH --evil"));
	assert_null(strstr(ct_str_text(&out), "cpus-per-task"));
	assert_non_null(strstr(ct_str_text(&out),
			       "'/opt/my tools/ctrain' c.yaml run.dir=runs/mnist optim.lr=0.1 'run.name=it'\\''s'\n"));
	ct_str_clear(&out);
	s.array = "0-3";
	s.cpus = "2";
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(strstr(ct_str_text(&out), "#SBATCH --output=mnist-%A_%a.log\n"));
	assert_non_null(strstr(ct_str_text(&out), "--comment=\"ctrain runs/mnist-%a\""));
	assert_non_null(strstr(ct_str_text(&out), "srun --kill-on-bad-exit=0 --cpus-per-task=2 "));
	assert_non_null(strstr(ct_str_text(&out), " run.dir=runs/mnist-\"$SLURM_ARRAY_TASK_ID\" "));
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		ct_str_clear(&out);
		s.time = bad[i];
		assert_int_equal(ct_slurm_script(&s, &out), CT_USAGE);
	}
	ct_str_release(&out);
}

static void test_script_options(void **state)
{
	static const char *const sets[] = {"run.seed=%a", "a=x%ay%a"}, *const more[] = {"--qos=high", "-C", "gpu",
											"--exclusive"};
	static const char *const bad[] = {"high",    "-",           "--nodes=2", "-N2",
					  "--array", "--comment=x", "--a b",     "--a=\"b\""};
	struct ct_slurm_script s = {.name = "mnist",
				    .command_line = "slurm c.yaml",
				    .program = "ctrain",
				    .config = "c.yaml",
				    .run_dir = "runs/mnist",
				    .sets = sets,
				    .n_sets = 2,
				    .more = more,
				    .n_more = 4,
				    .min_nodes = 1,
				    .nodes = 3,
				    .tasks = 1,
				    .array = "0-3"};
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(strstr(ct_str_text(&out), "\n#SBATCH --nodes=1-3\n"));
	assert_non_null(strstr(ct_str_text(&out), "\n#SBATCH --qos=high\n#SBATCH -C gpu\n#SBATCH --exclusive\n"));
	assert_non_null(
		strstr(ct_str_text(&out),
		       " run.seed=\"$SLURM_ARRAY_TASK_ID\" a=x\"$SLURM_ARRAY_TASK_ID\"y\"$SLURM_ARRAY_TASK_ID\"\n"));
	s.array = NULL;
	ct_str_clear(&out);
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(strstr(ct_str_text(&out), " run.seed=%a a=x%ay%a\n"));
	s.n_more = 1;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		s.more = &bad[i];
		assert_int_equal(ct_slurm_script(&s, &out), CT_USAGE);
	}
	ct_str_release(&out);
}

/* The shell that executes the script does not interpret the values. */
static void test_script_quotes_values(void **state)
{
	struct ct_slurm_script s = {.name = "mnist",
				    .command_line = "slurm c.yaml",
				    .program = "$(id)",
				    .config = "`id`",
				    .run_dir = "a$(touch${IFS}x)",
				    .cpus = "2;id",
				    .nodes = 1,
				    .tasks = 1};
	struct ct_str out = {0};

	(void)state;
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(
		strstr(ct_str_text(&out), " --cpus-per-task='2;id' \\\n\t'$(id)' '`id`' run.dir='a$(touch${IFS}x)'\n"));
	ct_str_clear(&out);
	s.array = "0-3";
	assert_int_equal(ct_slurm_script(&s, &out), CT_OK);
	assert_non_null(strstr(ct_str_text(&out), " run.dir='a$(touch${IFS}x)'-\"$SLURM_ARRAY_TASK_ID\"\n"));
	ct_str_release(&out);
}

/* A task of an array may have the id of the array, and requests about that id are about all of its tasks. */
static void test_job_of_environment(void **state)
{
	struct ct_slurm_job job;

	(void)state;
	assert_int_equal(setenv("SLURM_JOB_ID", "5", 1), 0);
	assert_int_equal(setenv("SLURM_RESTART_COUNT", "2", 1), 0);
	assert_int_equal(setenv("SLURM_CLUSTER_NAME", "c", 1), 0);
	ct_slurm_job_from_env(&job);
	assert_string_equal(job.name, "5");
	assert_int_equal(setenv("SLURM_ARRAY_JOB_ID", "5", 1), 0);
	assert_int_equal(setenv("SLURM_ARRAY_TASK_ID", "1", 1), 0);
	ct_slurm_job_from_env(&job);
	assert_string_equal(job.name, "5_1");
	assert_string_equal(job.key, "c/5");
	assert_int_equal(job.restart, 2);
	assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
	ct_slurm_job_from_env(&job);
	assert_int_equal(job.id, 0);
	assert_string_equal(job.name, "");
}

/* "NAME=value" strings, NULL at the end. */
static const char *get(const char *name, void *user)
{
	size_t n = strlen(name);

	for (const char *const *e = user; *e; e++)
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

static void test_cpus(void **state)
{
	static const struct {
		const char *env[5];
		int visible, local, want;
	} cases[] = {
		{{NULL}, 8, 2, 4},
		{{NULL}, 2, 4, 1},
		/* Two tasks of 4 CPUs each on a node: bound to their CPUs, and not bound. */
		{{"SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_NODEID=1", "SLURM_CPUS_PER_TASK=4", "SLURM_CPUS_ON_NODE=8"},
		 4,
		 2,
		 4},
		{{"SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_NODEID=1", "SLURM_CPUS_PER_TASK=4", "SLURM_CPUS_ON_NODE=8"},
		 64,
		 2,
		 4},
		/* Without --cpus-per-task. */
		{{"SLURM_STEP_TASKS_PER_NODE=2", "SLURM_NODEID=0", "SLURM_CPUS_ON_NODE=6"}, 64, 2, 3},
		/* One task per node starts 4 ranks. */
		{{"SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=1", "SLURM_CPUS_PER_TASK=8", "SLURM_CPUS_ON_NODE=8"},
		 64,
		 4,
		 2},
		/* A batch script without srun: its CPUs on this node, not those of a task. */
		{{"SLURM_CPUS_PER_TASK=2", "SLURM_CPUS_ON_NODE=8", "SLURM_NODEID=0"}, 64, 2, 4},
		{{"SLURM_STEP_TASKS_PER_NODE=4", "SLURM_NODEID=0", "SLURM_CPUS_ON_NODE=2"}, 64, 4, 1},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		int n = ct_plan_cpus_in(get, (void *)cases[i].env, cases[i].visible, cases[i].local);

		if (n != cases[i].want)
			fail_msg("case %zu: %d CPUs instead of %d", i, n, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_script),
		cmocka_unit_test(test_script_options),
		cmocka_unit_test(test_script_quotes_values),
		cmocka_unit_test(test_job_of_environment),
		cmocka_unit_test(test_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
