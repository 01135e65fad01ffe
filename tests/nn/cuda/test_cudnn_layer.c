/* Operation graphs and plans of nn/cuda/cudnn, executed by the stand-in for cuDNN on the software GPU. */
#include <math.h>

#include "nn/cuda/cudnn/plan.h"
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

enum { N = 2, C = 8, H = 7, K = 16, R = 3, X = N * H * H * C, W = K * R * R * C, Y = N * H * H * K };
static const struct ct_window window = {3, 3, 1, 1, 1, 1, 1, 1};

/* y = conv(x, w), or relu(conv(x, w) + bias) */
static enum ct_status build(bool fused, ct__cudnn_graph **out)
{
	ct__cudnn_graph *g;

	CT_TRY(ct__cudnn_graph_create(&g));
	const int x = ct__cudnn_tensor(g, "x", (int64_t[4]){N, C, H, H}, CT_F32, false),
		  w = ct__cudnn_tensor(g, "w", (int64_t[4]){K, C, R, R}, CT_F32, false),
		  y = ct__cudnn_tensor(g, "y", (int64_t[4]){N, K, H, H}, CT_F32, false);
	if (fused) {
		const int bias = ct__cudnn_channels(g, "bias", K, CT_F32),
			  v = ct__cudnn_tensor(g, "conv", (int64_t[4]){N, K, H, H}, CT_F32, true),
			  sum = ct__cudnn_tensor(g, "sum", (int64_t[4]){N, K, H, H}, CT_F32, true);

		ct__cudnn_add_conv(g, CT__CUDNN_FORWARD, x, w, v, &window);
		ct__cudnn_add_pointwise(g, CT__CUDNN_ADD, v, bias, sum);
		ct__cudnn_add_pointwise(g, CT__CUDNN_RELU, sum, 0, y);
	} else {
		ct__cudnn_add_conv(g, CT__CUDNN_FORWARD, x, w, y, &window);
	}
	enum ct_status st = ct__cudnn_graph_finish(g);
	if (st < 0)
		ct__cudnn_graph_destroy(g);
	else
		*out = g;
	return st;
}

struct memory {
	float x[X], w[W], y[Y], bias[K]; /* channels last */
	void *pointers[6], *workspace;   /* of the device, by the ids of the tensors */
};
static struct memory m;

static void make_memory(void)
{
	uint32_t seed = 5;
	float *const all[] = {m.x, m.w, m.bias};
	const int n[] = {X, W, K};

	for (int a = 0; a < 3; a++) {
		for (int i = 0; i < n[a]; i++) {
			seed = seed * 1664525u + 1013904223u;
			all[a][i] = (float)(seed >> 8) / (1 << 23) - 1;
		}
	}
	m.pointers[0] = upload(m.x, sizeof(m.x));
	m.pointers[1] = upload(m.w, sizeof(m.w));
	m.pointers[2] = upload(NULL, sizeof(m.y));
	m.pointers[3] = upload(m.bias, sizeof(m.bias));
	m.workspace = upload(NULL, 1 << 20);
	ok(cudaDeviceSynchronize());
}

static void free_memory(void)
{
	for (int i = 0; i < 4; i++)
		ok(cudaFree(m.pointers[i]));
	ok(cudaFree(m.workspace));
}

static double expected(int i, bool fused)
{
	const int k = i % K, q = i / K % H, p = i / K / H % H, n = i / K / H / H;
	double sum = fused ? (double)m.bias[k] : 0;

	for (int r = 0; r < R; r++) {
		for (int s = 0; s < R; s++) {
			const int h = p - 1 + r, w = q - 1 + s;

			for (int c = 0; h >= 0 && w >= 0 && h < H && w < H && c < C; c++)
				sum += (double)m.x[((n * H + h) * H + w) * C + c] *
				       (double)m.w[((k * R + r) * R + s) * C + c];
		}
	}
	return fused ? fmax(sum, 0) : sum;
}

/* The largest error. */
static double error_of(bool fused)
{
	double worst = 0;

	ok(cudaMemcpy(m.y, m.pointers[2], sizeof(m.y), cudaMemcpyDeviceToHost));
	for (int i = 0; i < Y; i++)
		worst = fmax(worst, isfinite(m.y[i]) ? fabs((double)m.y[i] - expected(i, fused)) : INFINITY);
	return worst;
}

/* A plan that is made from the string form of its configuration is the same. */
static void check_made_again(const ct__cudnn_graph *g, const ct__cudnn_target *t, const struct ct__cudnn_filter *filter,
			     const struct ct__cudnn_plan_info *want)
{
	ct__cudnn_plan *p;

	if (ct__cudnn_plan_make(g, t, filter, want->config, &p) < 0)
		fail_msg("%s: %s", want->config, ct_error_message());
	assert_string_equal(ct__cudnn_plan_info(p)->config, want->config);
	assert_int_equal(ct__cudnn_plan_info(p)->engine, want->engine);
	assert_int_equal(ct__cudnn_plan_info(p)->workspace_bytes, want->workspace_bytes);
	ct__cudnn_plan_destroy(p);
}

static void test_plans_from_strings(void **state)
{
	static const char *const bad[] = {"",          "x",  "1:", "1:2", "1:2=",  "1:2=1,",
					  "1:2=1;3=1", " 1", "1 ", "99",  "1:2=9", "1:3=1"};
	const struct ct__cudnn_filter filter = {.exact = true, .deterministic = true, .max_workspace_bytes = 1 << 20};
	struct ct__cudnn_candidates c;
	ct__cudnn_target *t;
	ct__cudnn_graph *g;
	ct__cudnn_plan *p;
	int n_knobs = 0;

	(void)state;
	assert_int_equal(build(false, &g), CT_OK);
	assert_int_equal(ct__cudnn_target_create(0, &t), CT_OK);
	assert_int_equal(ct__cudnn_plan_find(g, t, &filter, 64, &c), CT_OK);
	for (int i = 0; i < c.n; i++) {
		n_knobs += strchr(ct__cudnn_plan_info(c.plans[i])->config, '=') != NULL;
		check_made_again(g, t, &filter, ct__cudnn_plan_info(c.plans[i]));
	}
	assert_true(n_knobs >= 2);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const enum ct_status st = ct__cudnn_plan_make(g, t, &filter, bad[i], &p);

		if (st != (i < 9 ? CT_DATA : CT_UNSUPPORTED))
			fail_msg("\"%s\": status %d", bad[i], (int)st);
		ct_error_clear();
	}
	ct__cudnn_candidates_release(&c);
	ct__cudnn_target_destroy(t);
	ct__cudnn_graph_destroy(g);
	assert_int_equal(soft_cudnn_live(), 0);
}

/* Finds the plans, executes each and checks its results. */
static enum ct_status run(bool fused, bool exact, cudnnHandle_t handle, ct__cudnn_graph *g, ct__cudnn_target *t,
			  int *n_plans)
{
	const struct ct__cudnn_filter filter = {.exact = exact, .deterministic = true, .max_workspace_bytes = 1 << 20};
	struct ct__cudnn_candidates c;
	enum ct_status st = ct__cudnn_plan_find(g, t, &filter, 64, &c);

	if (st < 0)
		return st;
	*n_plans = c.n;
	for (int i = 0; i < c.n && st == CT_OK; i++) {
		ct__cudnn_pack *pack = NULL;

		st = ct__cudnn_pack_create(g, m.pointers, m.workspace, &pack);
		if (st == CT_OK)
			st = ct__cudnn_plan_execute(c.plans[i], pack, handle);
		if (st == CT_OK) {
			ok(cudaDeviceSynchronize());
			double e = error_of(fused);
			if (exact ? !(e < 1e-5) : !(e < 1e-2))
				fail_msg("fused %d, exact %d, engine %d: error %g", fused, exact,
					 (int)ct__cudnn_plan_info(c.plans[i])->engine, e);
		}
		ct__cudnn_pack_destroy(pack);
	}
	ct__cudnn_candidates_release(&c);
	return st;
}

static enum ct_status program(bool fused, bool exact, int *n_plans)
{
	ct__cudnn_graph *g = NULL;
	ct__cudnn_target *t = NULL;
	cudnnHandle_t handle;
	enum ct_status st = build(fused, &g);

	if (st == CT_OK)
		st = ct__cudnn_target_create(0, &t);
	if (st == CT_OK) {
		assert_int_equal(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
		st = run(fused, exact, handle, g, t, n_plans);
		assert_int_equal(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
	}
	ct__cudnn_target_destroy(t);
	ct__cudnn_graph_destroy(g);
	return st;
}

/* True fp32 has fewer plans than tf32, and all compute what they should. */
static void test_plans(void **state)
{
	int n_exact, n_all;

	(void)state;
	make_memory();
	for (int fused = 0; fused < 2; fused++) {
		assert_int_equal(program(fused, true, &n_exact), CT_OK);
		assert_int_equal(program(fused, false, &n_all), CT_OK);
		assert_true(n_exact >= 1 && n_all > n_exact);
	}
	free_memory();
	assert_int_equal(soft_cudnn_live() + soft_gpu_live(), 0);
}

static void fail_once(const char *function, int call, cudnnStatus_t status)
{
	char fault[96];

	snprintf(fault, sizeof(fault), "%s:%d:%d", function, call, (int)status);
	soft_gpu_set_faults(fault);
}

/* Each call of cuDNN fails once. This is an error that names cuDNN and the function, or one plan is skipped, and
 * nothing is left. */
static void test_each_call_fails(void **state)
{
	static const char *const functions[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
						"cudnnBackendGetAttribute", "cudnnBackendFinalize",
						"cudnnBackendExecute"};
	enum { FINALIZE = 3 };
	int n_plans, n_all, n_skipped = 0, n_survived = 0;

	(void)state;
	make_memory();
	for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++) {
		soft_gpu_set_faults(NULL);
		assert_int_equal(program(true, false, &n_all), CT_OK);
		const int n = soft_gpu_calls(functions[f]);
		for (int i = 1; i <= n; i++) {
			fail_once(functions[f], i, CUDNN_STATUS_INTERNAL_ERROR);
			if (program(true, false, &n_plans) == CT_OK) {
				if (n_plans != n_all - 1)
					fail_msg("call %d of %s failed unnoticed", i, functions[f]);
				n_survived += f == FINALIZE;
			} else {
				assert_non_null(strstr(ct_error_message(), "cuDNN: "));
				assert_non_null(strstr(ct_error_message(), functions[f]));
				assert_int_not_equal(ct_error_status(), CT_UNSUPPORTED);
			}
			ct_error_clear();
			assert_int_equal(soft_cudnn_live(), 0);
			if (f != FINALIZE)
				continue;
			fail_once(functions[f], i, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
			if (program(true, false, &n_plans) == CT_OK) {
				assert_true(n_plans >= 1 && n_plans < n_all);
				n_skipped++;
			}
			ct_error_clear();
			assert_int_equal(soft_cudnn_live(), 0);
		}
	}
	soft_gpu_set_faults(NULL);
	assert_int_equal(n_survived, n_all);
	assert_int_equal(n_skipped, n_all + 1); /* each plan, and heuristic A, whose place the fallbacks take */
	free_memory();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans), cmocka_unit_test(test_plans_from_strings),
					   cmocka_unit_test(test_each_call_fails)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
