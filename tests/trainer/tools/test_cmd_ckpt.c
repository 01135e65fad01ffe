/* `ctrain ckpt show`, `verify` and `export`: their output and exit codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/nn/on_host.h"
#include "tests/trainer/ckpt_fixture.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/tools/commands/commands.h"

static struct fixture fx;

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0 || fixture_try_open(&fx, "convnet", 3, 0.9f) < 0) {
		print_error("%s\n", ct_error_message());
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	fixture_close(&fx);
	return tmpdir_teardown(state);
}

/* Runs the command with standard output in a file; *text returns owned. */
static enum ct_status capture(enum ct_status (*run)(const struct ct_cli *cli), const struct ct_cli *cli, char **text)
{
	const char *path = in_tmpdir("stdout");
	int saved, fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	enum ct_status st;
	size_t len;

	assert_true(fd >= 0);
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	dup2(fd, STDOUT_FILENO);
	st = run(cli);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd);
	assert_ok(ct_file_read(path, 1 << 24, text, &len));
	return st;
}

static void test_show(void **state)
{
	const char *args[3] = {NULL};
	struct ct_cli cli = {.args = args, .n_args = 1};
	const ct_json *files, *tensors;
	int64_t step;
	char *text;
	ct_json *j;

	(void)state;
	assert_ok(fixture_save(&fx, in_tmpdir("run"), 42, 0, false));
	cli.args[0] = in_tmpdir("run");
	assert_ok(capture(ct_cmd_ckpt_show, &cli, &text));
	assert_non_null(strstr(text, "step-000000000042\n"));
	assert_non_null(strstr(text, "  step            42\n"));
	assert_non_null(strstr(text, "    optim.lr=0.1\n"));
	assert_non_null(strstr(text, "  fc.weight "));
	assert_non_null(strstr(text, "[3,128]"));
	assert_non_null(strstr(text, "  momentum_buffer/fc.bias "));
	ct_free(text);

	cli.json = true;
	assert_ok(capture(ct_cmd_ckpt_show, &cli, &text));
	assert_ok(ct_json_parse(text, strlen(text), "show", &j));
	assert_ok(ct_json_get_i64(ct_json_get(j, "state"), "step", &step));
	assert_int_equal(step, 42);
	files = ct_json_get(j, "files");
	assert_int_equal(ct_json_len(files), 2);
	tensors = ct_json_get(ct_json_at(files, 0), "tensors");
	assert_int_equal(ct_json_len(tensors), ct_graph_n_params(fx.graph) + ct_graph_n_buffers(fx.graph));
	ct_json_destroy(j);
	ct_free(text);
}

static void test_show_file(void **state)
{
	static const float values[5] = {1, -3, NAN, INFINITY, 5};
	static const struct ct_tensor_desc t[] = {{"odd\033[2J", 1, {5}, values}, {"none", 1, {0}, NULL}};
	const char *args[3] = {NULL};
	struct ct_cli cli = {.args = args, .n_args = 1};
	uint64_t bytes;
	char sha[65], *text;

	(void)state;
	assert_ok(ct_safetensors_write(in_tmpdir("odd.safetensors"), t, 2, NULL, NULL, NULL, sha, &bytes));
	cli.args[0] = in_tmpdir("odd.safetensors");
	assert_ok(capture(ct_cmd_ckpt_show, &cli, &text));
	assert_null(strchr(text, '\033'));
	assert_non_null(strstr(text, "odd\\x1b[2J"));
	assert_non_null(strstr(text, "-3           1           5  2 not finite"));
	ct_free(text);
	cli.args[0] = in_tmpdir("nothing");
	assert_fails(capture(ct_cmd_ckpt_show, &cli, &text), CT_NOT_FOUND, "nothing");
	ct_free(text);
}

static void test_verify(void **state)
{
	char *folder = ct_strdup(in_tmpdir("verify/checkpoints/step-000000000007"));
	char *file = ct_path_join(folder, "optim.safetensors"), *data, *text;
	const char *args[3] = {NULL};
	struct ct_cli cli = {.args = args, .n_args = 3};
	size_t len;

	(void)state;
	assert_ok(fixture_save(&fx, in_tmpdir("verify"), 7, 0, false));
	cli.args[0] = in_tmpdir("verify");
	cli.args[1] = folder;
	cli.args[2] = file;
	assert_ok(capture(ct_cmd_ckpt_verify, &cli, &text));
	assert_non_null(strstr(text, "step-000000000007: whole\n"));
	assert_non_null(strstr(text, "optim.safetensors: whole\n"));
	ct_free(text);

	assert_ok(ct_file_read(file, 1 << 24, &data, &len));
	data[len - 1] ^= 1;
	assert_ok(ct_file_replace(file, data, len));
	assert_fails(capture(ct_cmd_ckpt_verify, &cli, &text), CT_DATA, "3 of 3 checkpoints are damaged");
	assert_non_null(strstr(text, "step-000000000007: broken: "));
	assert_non_null(strstr(text, "optim.safetensors is damaged"));
	ct_free(text);
	cli.n_args = 1;
	cli.json = true;
	assert_fails(capture(ct_cmd_ckpt_verify, &cli, &text), CT_DATA, "optim.safetensors is damaged");
	assert_int_equal(ct_status_exit_code(CT_DATA), 3);
	assert_non_null(strstr(text, "\"ok\":false"));
	ct_free(text);
	/* Alone, without its checksum, only its form can be looked at. */
	assert_ok(ct_file_replace(in_tmpdir("alone.safetensors"), data, len));
	cli.args[0] = in_tmpdir("alone.safetensors");
	cli.json = false;
	assert_ok(capture(ct_cmd_ckpt_verify, &cli, &text));
	assert_non_null(strstr(text, "no checksum"));
	ct_free(text);
	ct_free(data);
	ct_free(file);
	ct_free(folder);
}

/* The weights that evaluations are of, under the names of a state_dict. */
static void test_export(void **state)
{
	const char *args[1] = {in_tmpdir("averaged")};
	struct ct_cli cli = {.args = args, .n_args = 1, .out = in_tmpdir("out.safetensors")};
	size_t params = ct_net_arena_elems(fx.net) * sizeof(float),
	       buffers = ct_arena_elems(ct_net_buffers(fx.net)) * sizeof(float);
	ct_safetensors *s;
	char *text;

	(void)state;
	assert_ok(fixture_save(&fx, args[0], 9, 0, false));
	assert_ok(capture(ct_cmd_ckpt_export, &cli, &text));
	assert_non_null(strstr(text, "out.safetensors: 14 tensors (EMA weights) from "));
	ct_free(text);
	assert_ok(ct_safetensors_open(cli.out, &s));
	assert_int_equal(ct_safetensors_count(s), 14);
	assert_true(ct_safetensors_find(s, "layer1.1.running_var") >= 0);
	ct_safetensors_close(s);
	fixture_set_step(&fx, 4);
	assert_ok(ct_model_weights_load(cli.out, fx.net, CT_WEIGHTS_WHOLE, NULL));
	float *p = ct_calloc(params, 1), *b = ct_calloc(buffers, 1);
	memcpy(p, on_host(ct_net_params(fx.net)), params);
	memcpy(b, on_host(ct_net_buffers(fx.net)), buffers);
	fixture_set_step(&fx, 9);
	assert_memory_equal(p, on_host(ct_ema_params(fx.ema)), params);
	assert_memory_equal(b, on_host(ct_ema_buffers(fx.ema)), buffers);
	ct_free(b);
	ct_free(p);
	/* Nothing is written over. */
	assert_fails(capture(ct_cmd_ckpt_export, &cli, &text), CT_IO, "out.safetensors");
	ct_free(text);
	cli.out = NULL;
	assert_fails(capture(ct_cmd_ckpt_export, &cli, &text), CT_USAGE, "--out");
	ct_free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_show),
		cmocka_unit_test(test_show_file),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_export),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
