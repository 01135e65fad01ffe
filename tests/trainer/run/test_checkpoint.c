/* Checkpoints: saved values can be loaded, checkpoints that do not match are refused, and old checkpoints are
 * deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "infer/safetensors.h"
#include "tests/nn/on_host.h"
#include "tests/trainer/ckpt_fixture.h"

static struct fixture fx;

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0)
		return -1;
	if (fixture_try_open(&fx, "convnet", 3, 0.9f) < 0) {
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

static const struct ct_train_state odd_state = {
	.step = INT64_MAX,
	.epoch = UINT32_MAX,
	.step_in_epoch = (uint64_t)1 << 53 | 1,
	.optim_steps = 12345678901234567,
	.best_top1 = 0.1 + 0.2,
	.best_step = 3,
	.last_top1 = -1,
	.last_loss = 5e-324,
	.epoch_loss_sum = 1.7976931348623157e308,
	.epoch_images = 7,
	.images = (uint64_t)1 << 62,
	.train_seconds = 1.0 / 3,
	.loss_scale = 65536,
	.loss_scale_steps = 12,
	.skipped_updates = (uint64_t)1 << 40,
	.global_batch = 256,
	.world = 4,
	.bucket_bytes = 8 << 20,
	.seed = INT64_MIN,
	.finished = true,
	.lr_scale = 0.1,
	.plateau_best = INFINITY,
	.plateau_n_since = 5,
	.plateau_cooldown = 6,
	.early_best = 1.0 / 3,
	.early_n_since = 7,
	.config_digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	.graph_digest = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
};

static bool same_bits(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0;
}

static void test_round_trip(void **state)
{
	struct ct_checkpoint_result saved;
	static const double odd_doubles[] = {-0.0, INFINITY, -INFINITY, 1e22, 123456789.0, 2.2250738585072014e-308};
	const char *run = in_tmpdir("round"), *lines = "a=1\nb=\"two\"\n\xc3\xa9\n";
	struct ct_train_state in = odd_state, out;
	struct ct_checkpoint_source src = {
		.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &in, .config_lines = lines};
	char *path = NULL, *config = NULL;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(odd_doubles); i++) {
		fixture_set_step(&fx, 12);
		in.last_loss = odd_doubles[i];
		in.epoch_loss_sum = i ? NAN : 4;
		assert_ok(save_now(run, &src, 2, true, &saved));
		path = saved.path;
		assert_true(saved.seconds >= 0 && saved.bytes > 1000 && saved.step == in.step);
		assert_ok(ct_checkpoint_verify(path));
		memset(&out, 0xff, sizeof(out));
		assert_ok(ct_checkpoint_load_state(path, &out, &config));
		assert_string_equal(config, lines);
		assert_true(same_bits(in.last_loss, out.last_loss));
		assert_true(i ? isnan(out.epoch_loss_sum) : out.epoch_loss_sum == 4);
		assert_true(same_bits(in.best_top1, out.best_top1) && same_bits(in.train_seconds, out.train_seconds));
		assert_true(in.step == out.step && in.epoch == out.epoch && in.step_in_epoch == out.step_in_epoch);
		assert_true(out.loss_scale == 65536 && out.loss_scale_steps == 12);
		assert_true(out.skipped_updates == in.skipped_updates && out.bucket_bytes == in.bucket_bytes);
		assert_true(in.optim_steps == out.optim_steps && in.images == out.images && in.seed == out.seed);
		assert_true(out.finished && out.world == 4 && out.global_batch == 256 && out.best_step == 3);
		assert_true(out.lr_scale == 0.1 && isinf(out.plateau_best) && same_bits(in.early_best, out.early_best));
		assert_true(out.plateau_n_since == 5 && out.plateau_cooldown == 6 && out.early_n_since == 7);
		assert_string_equal(in.config_digest, out.config_digest);
		assert_string_equal("", out.data_digest);
		fixture_set_step(&fx, 13);
		assert_ok(ct_checkpoint_load(path, fx.net, fx.optim, fx.ema));
		assert_true(ct_optim_steps(fx.optim) == in.optim_steps);
		ct_optim_set_steps(fx.optim, 12);
		assert_true(fixture_is_step(&fx, 12));
		ct_free(config);
		ct_free(path);
	}
	/* Parts of it: the tensors of the optimizer and of the EMA may be skipped. */
	assert_ok(ct_checkpoint_resolve(run, "best", &path));
	assert_ok(ct_checkpoint_load(path, fx.net, NULL, NULL));
	assert_ok(ct_checkpoint_load(path, fx.net, fx.optim, NULL));
	assert_ok(ct_checkpoint_load(path, fx.net, NULL, fx.ema));
	ct_free(path);
}

static void test_without_averages(void **state)
{
	struct ct_checkpoint_result saved;
	struct ct_checkpoint_source src = {.net = fx.net, .optim = fx.optim, .state = &fx.state};
	char *path;

	(void)state;
	fixture_set_step(&fx, 7);
	assert_ok(save_now(in_tmpdir("weights"), &src, 0, false, &saved));
	path = saved.path;
	assert_fails(ct_checkpoint_load(path, fx.net, fx.optim, fx.ema), CT_DATA, "are missing: ema/layer1.0.weight, ");
	ct_free(path);
}

/* The names that PyTorch's state_dict has. */
static void test_names(void **state)
{
	static const char *const names[] = {"layer1.0.weight", "layer1.1.running_mean", "layer2.1.bias", "fc.bias"};
	static const char *const optim_names[] = {"momentum_buffer/fc.weight", "ema/fc.weight",
						  "ema/layer1.1.running_var"};
	const char *run = in_tmpdir("names");
	ct_safetensors *s;
	char *path, *file;

	(void)state;
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	assert_ok(ct_checkpoint_find(run, &path));
	file = ct_path_join(path, "model.safetensors");
	assert_ok(ct_safetensors_open(file, &s));
	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++)
		assert_true(ct_safetensors_find(s, names[i]) >= 0);
	assert_int_equal(ct_safetensors_count(s), ct_graph_n_params(fx.graph) + ct_graph_n_buffers(fx.graph));
	ct_safetensors_close(s);
	ct_free(file);
	file = ct_path_join(path, "optim.safetensors");
	assert_ok(ct_safetensors_open(file, &s));
	for (size_t i = 0; i < CT_ARRAY_LEN(optim_names); i++)
		assert_true(ct_safetensors_find(s, optim_names[i]) >= 0);
	ct_safetensors_close(s);
	ct_free(file);
	ct_free(path);
}

static void test_does_not_fit(void **state)
{
	struct fixture wider = {0}, other = {0}, plain = {0};
	const char *run = in_tmpdir("fit");
	char *path;

	(void)state;
	assert_ok(fixture_try_open(&wider, "convnet", 4, 0.9f));
	assert_ok(fixture_try_open(&other, "mlp", 3, 0.9f));
	assert_ok(fixture_try_open(&plain, "convnet", 3, 0));
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	assert_ok(ct_checkpoint_find(run, &path));
	fixture_set_step(&wider, 1);
	assert_fails(ct_checkpoint_load(path, wider.net, NULL, NULL), CT_DATA,
		     "fc.weight is [3,128], but the model's is [4,128]");
	assert_non_null(strstr(ct_error_message(), "fc.bias is [3]"));
	assert_true(fixture_is_step(&wider, 1));
	assert_fails(ct_checkpoint_load(path, other.net, NULL, NULL), CT_DATA, "are missing: fc1.weight");
	assert_non_null(strstr(ct_error_message(), "are not in the model: "));
	assert_fails(ct_checkpoint_load(path, plain.net, plain.optim, NULL), CT_DATA, "momentum_buffer/");
	ct_free(path);
	fixture_close(&plain);
	fixture_close(&other);
	fixture_close(&wider);
}

static void test_no_optimizer_state(void **state)
{
	struct ct_checkpoint_result saved;
	const char *run = in_tmpdir("nostate");
	struct fixture plain = {0};
	struct ct_checkpoint_source src;
	char *path;

	(void)state;
	assert_ok(fixture_try_open(&plain, "convnet", 3, 0));
	plain.state.step = 4;
	plain.state.optim_steps = 4;
	src = (struct ct_checkpoint_source){
		.net = plain.net, .optim = plain.optim, .state = &plain.state, .config_lines = ""};
	assert_ok(save_now(run, &src, 1, false, &saved));
	path = saved.path;
	assert_ok(ct_checkpoint_verify(path));
	assert_ok(ct_checkpoint_load(path, plain.net, plain.optim, NULL));
	assert_true(ct_optim_steps(plain.optim) == 4);
	ct_free(path);
	fixture_close(&plain);
}

static void assert_checkpoints(const char *run, const char *const *names, size_t n)
{
	char *folder = ct_path_join(run, "checkpoints"), **found;
	size_t count, k = 0;

	assert_ok(ct_dir_list(folder, &found, &count));
	for (size_t i = 0; i < count; i++) {
		assert_true(k < n);
		assert_string_equal(found[i], names[k++]);
	}
	assert_int_equal(k, n);
	ct_dir_list_free(found, count);
	ct_free(folder);
}

static void assert_link(const char *run, const char *link, const char *target)
{
	char path[600], found[64] = {0};

	snprintf(path, sizeof(path), "%s/checkpoints/%s", run, link);
	assert_true(readlink(path, found, sizeof(found) - 1) > 0);
	assert_string_equal(found, target);
}

static void test_keep_last(void **state)
{
	static const char *const three[] = {"best", "last", "step-000000000002", "step-000000000009",
					    "step-000000000010"};
	static const char *const moved[] = {"best", "last", "step-000000000010", "step-000000000011"};
	static const char *const back[] = {"best", "last", "step-000000000003", "step-000000000010"};
	const char *run = in_tmpdir("keep");

	(void)state;
	assert_ok(fixture_save(&fx, run, 1, 2, true));
	assert_ok(fixture_save(&fx, run, 2, 2, true));
	assert_ok(fixture_save(&fx, run, 9, 2, false));
	assert_ok(fixture_save(&fx, run, 10, 2, false));
	assert_checkpoints(run, three, CT_ARRAY_LEN(three));
	assert_link(run, "last", "step-000000000010");
	assert_link(run, "best", "step-000000000002");
	assert_int_equal(fixture_newest(&fx, run), 10);
	assert_ok(fixture_save(&fx, run, 10, 2, true));
	assert_ok(fixture_save(&fx, run, 11, 2, false));
	assert_checkpoints(run, moved, CT_ARRAY_LEN(moved));
	/* Training that went back to an earlier step: its saves are the newest, whatever their number. */
	assert_ok(fixture_save(&fx, run, 3, 1, false));
	assert_int_equal(fixture_newest(&fx, run), 3);
	assert_checkpoints(run, back, CT_ARRAY_LEN(back));
}

/* The same step again replaces what is there. */
static void test_same_step(void **state)
{
	struct ct_checkpoint_result saved;
	const char *run = in_tmpdir("same");
	struct ct_checkpoint_source src = {
		.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &fx.state, .config_lines = ""};
	struct ct_train_state out;
	char *path;

	(void)state;
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	fx.state.images = 77;
	assert_ok(save_now(run, &src, 0, false, &saved));
	path = saved.path;
	assert_int_equal(fixture_newest(&fx, run), 5);
	assert_ok(ct_checkpoint_load_state(path, &out, NULL));
	assert_int_equal(out.images, 77);
	assert_int_equal(count_names(run, ""), 2);
	ct_free(path);
}

/* Weights that have overflowed are no checkpoint to go on from. */
static void test_not_finite(void **state)
{
	const char *run = in_tmpdir("finite");
	struct ct_checkpoint_source src = {
		.net = fx.net, .optim = fx.optim, .ema = fx.ema, .state = &fx.state, .config_lines = ""};
	float *arenas[] = {on_host(ct_net_params(fx.net)), on_host(ct_optim_state(fx.optim, 0)),
			   on_host(ct_ema_params(fx.ema))};

	(void)state;
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	fx.state.step = 6;
	for (size_t i = 0; i < CT_ARRAY_LEN(arenas); i++) {
		float keep = arenas[i][0];

		arenas[i][0] = i == 1 ? INFINITY : NAN;
		assert_int_equal(save_now(run, &src, 0, false, NULL), CT_NUMERIC);
		assert_non_null(strstr(ct_error_message(), "1 of the "));
		arenas[i][0] = keep;
	}
	assert_int_equal(fixture_newest(&fx, run), 5);
	assert_int_equal(count_names(run, ""), 2);
}

static void test_resolve(void **state)
{
	const char *run = in_tmpdir("resolve");
	char *path, *again, link[600];

	(void)state;
	assert_fails(ct_checkpoint_resolve(run, "last", &path), CT_NOT_FOUND, "no checkpoint \"last\"");
	assert_fails(ct_checkpoint_resolve(run, in_tmpdir("nowhere"), &path), CT_NOT_FOUND, "nowhere");
	assert_ok(ct_checkpoint_find(run, &path));
	assert_null(path);
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	assert_fails(ct_checkpoint_resolve(run, "best", &path), CT_NOT_FOUND, "no checkpoint \"best\"");
	assert_fails(ct_checkpoint_resolve(NULL, tmpdir, &path), CT_NOT_FOUND, "neither");
	assert_ok(ct_checkpoint_resolve(run, "last", &path));
	assert_non_null(strstr(path, "step-000000000005"));
	/* A run directory means its last checkpoint, a checkpoint means itself. */
	assert_ok(ct_checkpoint_resolve(NULL, run, &again));
	assert_string_equal(path, again);
	ct_free(again);
	assert_ok(ct_checkpoint_resolve(NULL, path, &again));
	assert_string_equal(path, again);
	ct_free(again);
	/* A link that leads nowhere is no obstacle. */
	snprintf(link, sizeof(link), "%s/checkpoints/last", run);
	assert_ok(ct_link_replace("step-000000000099", link));
	assert_ok(ct_checkpoint_resolve(run, "last", &again));
	assert_string_equal(path, again);
	ct_free(again);
	ct_free(path);
}

struct reader {
	const char *run;
	uint32_t step; /* saved by the training run */
	int n_pruned, n_calls;
};

/* Reads a checkpoint, and is so slow that the run saves n_pruned more of them, and keeps one only. */
static enum ct_status read_slowly(const char *path, void *user)
{
	struct reader *r = user;

	r->n_calls++;
	if (r->n_pruned-- > 0) {
		assert_ok(fixture_save(&fx, r->run, ++r->step, 1, false));
		assert_int_equal(ct_checkpoint_verify(path), CT_DATA);
	}
	return ct_checkpoint_verify(path);
}

/* A checkpoint that is deleted while it is read is looked for again; a broken one is not. */
static void test_pruned_while_read(void **state)
{
	const char *run = in_tmpdir("pruned");
	struct reader r = {.run = run, .step = 10, .n_pruned = 3};
	char *path, *first;

	(void)state;
	assert_ok(fixture_save(&fx, run, r.step, 1, false));
	assert_ok(ct_checkpoint_use(run, "last", read_slowly, &r, &path));
	assert_int_equal(r.n_calls, 4);
	assert_string_equal(ct_path_name(path), "step-000000000013");
	ct_free(path);
	/* A run directory stands for its last one. */
	r = (struct reader){.run = run, .step = 13, .n_pruned = 1};
	assert_ok(ct_checkpoint_use(NULL, run, read_slowly, &r, &path));
	assert_int_equal(r.n_calls, 2);
	ct_free(path);
	/* Named by its path, there is no other. */
	assert_ok(ct_checkpoint_resolve(run, "last", &first));
	r = (struct reader){.run = run, .step = 14, .n_pruned = 1};
	assert_int_equal(ct_checkpoint_use(NULL, first, read_slowly, &r, &path), CT_DATA);
	assert_int_equal(r.n_calls, 1);
	assert_string_equal(path, first);
	ct_free(path);
	ct_free(first);
	assert_int_equal(unlink(in_tmpdir("pruned/checkpoints/last/model.safetensors")), 0);
	r = (struct reader){.run = run, .step = 15};
	assert_int_equal(ct_checkpoint_use(run, "last", read_slowly, &r, &path), CT_DATA);
	assert_int_equal(r.n_calls, 1);
	ct_free(path);
	assert_int_equal(ct_checkpoint_use(run, "best", read_slowly, &r, &path), CT_NOT_FOUND);
	assert_null(path);
}

/* The run to which a path belongs; want NULL: none. */
static void expect_run(const char *folder, const char *below, const char *want)
{
	char *path = ct_path_join(folder, below), *run = ct_checkpoint_run(path);

	if (!run != !want || (run && strcmp(run, want) != 0))
		fail_msg("%s: in the run %s, not %s", path, run ? run : "none", want ? want : "none");
	ct_free(run);
	ct_free(path);
}

/* Only paths in the place of checkpoints belong to a run; the directories above may have a config.yaml, too. */
static void test_run(void **state)
{
	const char *run = in_tmpdir("whose/run");

	(void)state;
	assert_ok(fixture_save(&fx, run, 5, 0, false));
	expect_run(run, "", NULL);
	expect_run(run, "checkpoints/last", NULL);
	assert_ok(ct_file_replace(in_tmpdir("whose/run/config.yaml"), "", 0));
	expect_run(run, "", run);
	expect_run(run, "checkpoints/last", run);
	expect_run(run, "checkpoints/step-000000000005/", run);
	expect_run(run, "checkpoints/last/model.safetensors", run);
	expect_run(run, "checkpoints", NULL);
	expect_run(run, "nothing", NULL);
	assert_ok(ct_dir_make(in_tmpdir("whose/run/checkpoints/own")));
	assert_ok(ct_file_replace(in_tmpdir("whose/run/checkpoints/own/model.safetensors"), "", 0));
	assert_ok(ct_file_replace(in_tmpdir("whose/run/best.safetensors"), "", 0));
	expect_run(run, "checkpoints/own/model.safetensors", NULL);
	expect_run(run, "best.safetensors", NULL);
	assert_int_equal(rename(in_tmpdir("whose/run/checkpoints/step-000000000005"), in_tmpdir("whose/run/step")), 0);
	expect_run(run, "step", NULL);
	expect_run(run, "step/model.safetensors", NULL);
	expect_run("/", "", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_without_averages),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_does_not_fit),
		cmocka_unit_test(test_no_optimizer_state),
		cmocka_unit_test(test_keep_last),
		cmocka_unit_test(test_same_step),
		cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_pruned_while_read),
		cmocka_unit_test(test_run),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
