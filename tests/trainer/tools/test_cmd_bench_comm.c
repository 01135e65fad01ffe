/* `ctrain bench comm` on two ranks whose communicator damages data: the table, the JSON file and the exit code. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "dist/comm/comm_impl.h"
#include "tests/base/check.h"
#include "trainer/tools/commands/commands.h"

static bool damages;
static struct ct_comm_ops damaged;
static enum ct_status (*real_post)(ct_comm *c, ct_work *w);

static enum ct_status damaging_post(ct_comm *c, ct_work *w)
{
	if (c->rank == 1 && w->dtype == CT_F32)
		((float *)(uintptr_t)w->src)[w->n / 2] = 1000;
	return real_post(c, w);
}

/* The linker replaces ct_comm_open by this function (--wrap). */
enum ct_status __real_ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts,
				   ct_comm **out);
enum ct_status __wrap_ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts,
				   ct_comm **out);
enum ct_status __wrap_ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts,
				   ct_comm **out)
{
	CT_TRY(__real_ct_comm_open(backend, world, opts, out));
	if (damages) {
		damaged = *(*out)->ops;
		real_post = damaged.post;
		damaged.post = damaging_post;
		(*out)->ops = &damaged;
	}
	return CT_OK;
}

static _Noreturn void be_rank(int rank, const char *dir)
{
	char *config = ct_path_join(dir, "c.yaml"), *out = ct_path_join(dir, "out.json");
	char *text = ct_path_join(dir, "out.txt"), *file = ct_path_join(dir, "meet"), init[300];
	char *argv[] = {"ctrain", "bench", "comm",    config, init,    "--op", "allreduce",        "-b", "64",
			"-e",     "4K",    "--iters", "2",    "--out", out,    "dist.backend=shm", NULL};
	struct ct_cli cli;
	enum ct_status st;

	snprintf(init, sizeof(init), "launch.init=file://%s", file);
	setenv("RANK", rank == 0 ? "0" : "1", 1);
	setenv("WORLD_SIZE", "2", 1);
	if (!freopen(rank == 0 ? text : "/dev/null", "w", stdout))
		_exit(99);
	st = ct_cli_parse(&ct_commands, (int)CT_ARRAY_LEN(argv) - 1, argv, &cli);
	if (st == CT_OK)
		st = cli.command->run(&cli);
	fflush(stdout);
	if (st < 0)
		fprintf(stderr, "rank %d: %s\n", rank, ct_error_message());
	_exit(ct_status_exit_code(st));
}

/* Returns the file's contents, which the caller owns. */
static char *contents(const char *dir, const char *name)
{
	char *path = ct_path_join(dir, name), *text = NULL;
	size_t len;

	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	ct_free(path);
	return text;
}

/* Runs two ranks; expects this exit code of rank 0 and this number of wrong elements in each row. */
static void check_run(const char *dir, int code, int64_t wrong)
{
	char *config = ct_path_join(dir, "c.yaml"), *text;
	static const char yaml[] =
		"model: {name: mlp}\ndata: {name: synthetic}\nbatch: {global: 4}\ntrain: {max_steps: 1}\n";
	int64_t sum = -1, in_row = -1;
	ct_json *j = NULL;
	pid_t pids[2];
	int status;

	assert_ok(ct_file_replace(config, yaml, sizeof(yaml) - 1));
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			be_rank(i, dir);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), i == 0 ? code : 0);
	}
	text = contents(dir, "out.json");
	assert_ok(ct_json_parse(text, strlen(text), "out.json", &j));
	assert_ok(ct_json_get_i64(j, "wrong", &sum));
	assert_int_equal(sum, 4 * wrong);
	for (size_t i = 0; i < 4; i++) {
		assert_ok(ct_json_get_i64(ct_json_at(ct_json_get(j, "rows"), i), "wrong", &in_row));
		assert_int_equal(in_row, wrong);
	}
	ct_json_destroy(j);
	ct_free(text);
	text = contents(dir, "out.txt");
	assert_non_null(
		strstr(text, wrong > 0 ? "# Out of bounds values : 8 FAILED\n" : "# Out of bounds values : 0 OK\n"));
	ct_free(text);
	ct_free(config);
}

static void test_damaged(void **state)
{
	damages = true;
	check_run(*state, ct_status_exit_code(CT_COMM), 2);
}

static void test_correct(void **state)
{
	damages = false;
	check_run(*state, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged), cmocka_unit_test(test_correct)};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
