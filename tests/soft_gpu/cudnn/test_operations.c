/* Compares each operation of the stand-in with plain loops in double precision, on unusual shapes, for each type and
 * each engine. */
#include <math.h>

#include "tests/soft_gpu/cudnn/device_tensor.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

struct shape {
	int64_t n, c, h, w, k, r, s, groups, extra;
	struct conv_spec win;
};

static const struct shape shapes[] = {
	{1, 1, 1, 1, 1, 1, 1, 1, 0, {{1, 1}, {0, 0}, {1, 1}}},
	{2, 3, 7, 5, 5, 3, 3, 1, 0, {{1, 1}, {1, 1}, {1, 1}}},
	{3, 8, 9, 9, 16, 3, 3, 1, 0, {{2, 2}, {1, 1}, {1, 1}}},
	{2, 6, 8, 11, 4, 3, 2, 2, 0, {{2, 1}, {0, 2}, {1, 2}}},
	{2, 5, 6, 6, 5, 3, 3, 5, 3, {{1, 1}, {2, 2}, {2, 2}}},
	{4, 70, 1, 1, 33, 1, 1, 1, 0, {{1, 1}, {0, 0}, {1, 1}}},
	{1, 4, 12, 12, 7, 5, 5, 1, 4, {{3, 3}, {2, 2}, {1, 1}}},
	{2, 300, 3, 3, 9, 3, 3, 1, 0, {{1, 1}, {1, 1}, {1, 1}}},
};
static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
static cudnnHandle_t handle;
static cudaStream_t stream;

/* The sums of a convolution, added to those of the result. */
static void reference(enum direction way, const struct shape *s, const struct device_tensor *x,
		      const struct device_tensor *w, const struct device_tensor *y, double *out)
{
	const int64_t kg = s->k / s->groups, cg = s->c / s->groups, p_n = y->dims[2], q_n = y->dims[3];

	for (int64_t i = 0; i < s->n * s->k * p_n * q_n * cg * s->r * s->s; i++) {
		int64_t t = i % s->s, r = i / s->s % s->r, c = i / s->s / s->r % cg, y_at = i / s->s / s->r / cg,
			q = y_at % q_n, p = y_at / q_n % p_n, k = y_at / q_n / p_n % s->k, n = y_at / q_n / p_n / s->k,
			h = p * s->win.stride[0] - s->win.pad[0] + r * s->win.dilation[0],
			v = q * s->win.stride[1] - s->win.pad[1] + t * s->win.dilation[1];

		if (h < 0 || v < 0 || h >= s->h || v >= s->w)
			continue;
		int64_t x_at = ((n * s->c + k / kg * cg + c) * s->h + h) * s->w + v,
			w_at = ((k * cg + c) * s->r + r) * s->s + t;
		if (way == FORWARD)
			out[y_at] += x->values[x_at] * w->values[w_at];
		else if (way == DATA)
			out[x_at] += y->values[y_at] * w->values[w_at];
		else
			out[w_at] += x->values[x_at] * y->values[y_at];
	}
}

/* ||got - expected|| / ||expected|| */
static double distance(const struct device_tensor *got, const double *expected)
{
	double error = 0, norm = 0;

	for (int64_t i = 0; i < got->n; i++) {
		error += (got->values[i] - expected[i]) * (got->values[i] - expected[i]);
		norm += expected[i] * expected[i];
	}
	return sqrt(error / (norm > 0 ? norm : 1));
}

static double tolerance(cudnnDataType_t type, const struct plan *p)
{
	if (type == CUDNN_DATA_BFLOAT16)
		return p->numerical >> CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION & 1 ? 6e-3 : 4e-3;
	if (type == CUDNN_DATA_HALF)
		return p->numerical >> CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION & 1 ? 3e-3 : 5e-4;
	return p->numerical >> CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1 ? 1e-3 : 1e-6;
}

static void check_conv(const struct shape *s, enum direction way, cudnnDataType_t type)
{
	static struct builder b;
	cudnnBackendDescriptor_t configs[MAX_CONFIGS], op, graph, device;
	const int64_t p = (s->h + 2 * s->win.pad[0] - (s->r - 1) * s->win.dilation[0] - 1) / s->win.stride[0] + 1,
		      q = (s->w + 2 * s->win.pad[1] - (s->s - 1) * s->win.dilation[1] - 1) / s->win.stride[1] + 1;
	struct device_tensor x, w, y, *all[3] = {&x, &w, &y};

	builder_begin(&b, &linked_library);
	x = new_tensor(&b, type, s->n, s->c, s->h, s->w, s->extra, false);
	w = new_tensor(&b, type, s->k, s->c / s->groups, s->r, s->s, 0, false);
	y = new_tensor(&b, type, s->n, s->k, p, q, s->extra, false);
	struct device_tensor *out = way == FORWARD ? &y : way == DATA ? &x : &w;
	for (int i = 0; i < 3; i++) {
		if (all[i] != out)
			fill(all[i]);
	}
	double *expected = calloc((size_t)out->n, sizeof(double));
	reference(way, s, &x, &w, &y, expected);
	op = make_conv(&b, way, x.descriptor, w.descriptor, y.descriptor, &s->win);
	graph = make_graph(&b, 1, &op);
	device = make_device(&b, NULL);
	int64_t n = propose(&b, graph, device, CUDNN_HEUR_MODE_A, configs);
	cudnn_ok(b.status);
	assert_true(n >= 4);
	for (int64_t i = 0; i < n; i++) {
		struct plan plan;
		void *workspace = NULL;

		cudnn_ok(make_plan(&b, configs[i], device, &plan));
		if (plan.workspace)
			ok(cudaMalloc(&workspace, (size_t)plan.workspace));
		ok(cudaMemsetAsync(out->memory, 0xff, out->bytes, stream));
		execute(&b, handle, &plan, 3, all, workspace);
		ok(cudaStreamSynchronize(stream));
		download(out);
		double d = distance(out, expected);
		if (!(d <= tolerance(type, &plan)))
			fail_msg("shape %d, direction %d, type %d, engine %d: relative error %g", (int)(s - shapes),
				 (int)way, (int)type, (int)plan.engine, d);
		if (workspace)
			ok(cudaFree(workspace));
	}
	free(expected);
	for (int i = 0; i < 3; i++)
		free_tensor(all[i]);
	builder_end(&b);
}

static void test_convolutions(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (int way = FORWARD; way <= FILTER; way++)
			for (int t = 0; t < 3; t++)
				check_conv(&shapes[i], (enum direction)way, types[t]);
}

/* ---- Pointwise operations --------------------------------------------------------------------------- */

static double apply(cudnnPointwiseMode_t mode, double x, double b, double t)
{
	switch ((int)mode) {
	case CUDNN_POINTWISE_ADD:
		return x + b;
	case CUDNN_POINTWISE_ADD_SQUARE:
		return x + b * b;
	case CUDNN_POINTWISE_SUB:
		return x - b;
	case CUDNN_POINTWISE_MUL:
		return x * b;
	case CUDNN_POINTWISE_DIV:
		return x / b;
	case CUDNN_POINTWISE_MIN:
		return fmin(x, b);
	case CUDNN_POINTWISE_MAX:
		return fmax(x, b);
	case CUDNN_POINTWISE_ABS:
		return fabs(x);
	case CUDNN_POINTWISE_NEG:
		return -x;
	case CUDNN_POINTWISE_EXP:
		return exp(x);
	case CUDNN_POINTWISE_TANH_FWD:
		return tanh(x);
	case CUDNN_POINTWISE_SIGMOID_FWD:
		return 1 / (1 + exp(-x));
	case CUDNN_POINTWISE_RECIPROCAL:
		return 1 / x;
	case CUDNN_POINTWISE_RELU_FWD:
		return x > 0 ? x : 0;
	case CUDNN_POINTWISE_RELU_BWD:
		return x > 0 ? b : 0;
	case CUDNN_POINTWISE_CMP_GT:
		return x > b;
	case CUDNN_POINTWISE_CMP_LE:
		return x <= b;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return t != 0 ? x : b;
	default:
		return x;
	}
}

static const struct {
	cudnnPointwiseMode_t mode;
	int n_in;
} modes[] = {
	{CUDNN_POINTWISE_ADD, 2},        {CUDNN_POINTWISE_ADD_SQUARE, 2}, {CUDNN_POINTWISE_SUB, 2},
	{CUDNN_POINTWISE_MUL, 2},        {CUDNN_POINTWISE_DIV, 2},        {CUDNN_POINTWISE_MIN, 2},
	{CUDNN_POINTWISE_MAX, 2},        {CUDNN_POINTWISE_ABS, 1},        {CUDNN_POINTWISE_NEG, 1},
	{CUDNN_POINTWISE_EXP, 1},        {CUDNN_POINTWISE_TANH_FWD, 1},   {CUDNN_POINTWISE_SIGMOID_FWD, 1},
	{CUDNN_POINTWISE_RECIPROCAL, 1}, {CUDNN_POINTWISE_RELU_FWD, 1},   {CUDNN_POINTWISE_RELU_BWD, 2},
	{CUDNN_POINTWISE_CMP_GT, 2},     {CUDNN_POINTWISE_CMP_LE, 2},     {CUDNN_POINTWISE_BINARY_SELECT, 3},
	{CUDNN_POINTWISE_IDENTITY, 1},
};

/* Finds the only plan, executes it with its workspace, and gets the results. */
static void run_graph(struct builder *b, int n_ops, const cudnnBackendDescriptor_t *ops, int n,
		      struct device_tensor *const *tensors)
{
	cudnnBackendDescriptor_t graph = make_graph(b, n_ops, ops), device = make_device(b, NULL);
	struct plan p = find_plan(b, graph, device, CUDNN_HEUR_MODE_A, 0, 0);
	void *workspace = NULL;

	cudnn_ok(b->status);
	assert_non_null(p.descriptor);
	if (p.workspace)
		ok(cudaMalloc(&workspace, (size_t)p.workspace));
	execute(b, handle, &p, n, tensors, workspace);
	ok(cudaStreamSynchronize(stream));
	if (workspace)
		ok(cudaFree(workspace));
}

/* b is broadcast over N, H and W, or has the size of x. */
static void check_pointwise(cudnnPointwiseMode_t mode, int n_in, cudnnDataType_t type, bool broadcast)
{
	static struct builder b;
	struct device_tensor in[3], y, *all[4];
	cudnnBackendDescriptor_t op;

	builder_begin(&b, &linked_library);
	for (int i = 0; i < n_in; i++) {
		in[i] = i == 1 && broadcast ? new_tensor(&b, type, 1, 5, 1, 1, 0, false)
					    : new_tensor(&b, type, 2, 5, 3, 4, i, false);
		fill(&in[i]);
		all[i] = &in[i];
	}
	if (mode == CUDNN_POINTWISE_RELU_BWD) { /* the gradient at 0 is 0 */
		in[0].values[0] = 0;
		ok(cudaMemset(in[0].memory, 0, bytes_of(type)));
		ok(cudaDeviceSynchronize());
	}
	y = new_tensor(&b, type, 2, 5, 3, 4, 1, false);
	all[n_in] = &y;
	op = make_pointwise(&b, mode, in[0].descriptor, n_in > 1 ? in[1].descriptor : NULL,
			    n_in > 2 ? in[2].descriptor : NULL, y.descriptor);
	run_graph(&b, 1, &op, n_in + 1, all);
	download(&y);
	for (int64_t i = 0; i < y.n; i++) {
		double second = n_in < 2 ? 0 : in[1].values[broadcast ? i / 12 % 5 : i],
		       expected = apply(mode, in[0].values[i], second, n_in < 3 ? 0 : in[2].values[i]);

		if (!(fabs(y.values[i] - expected) <= fabs(expected) * (type == CUDNN_DATA_FLOAT ? 1e-6 : 0x1p-8)))
			fail_msg("mode %d, type %d: %g instead of %g", (int)mode, (int)type, y.values[i], expected);
	}
	for (int i = 0; i <= n_in; i++)
		free_tensor(all[i]);
	builder_end(&b);
}

static void test_pointwise(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		for (int t = 0; t < 3; t++)
			for (int broadcast = 0; broadcast < (modes[i].n_in > 1 ? 2 : 1); broadcast++)
				check_pointwise(modes[i].mode, modes[i].n_in, types[t], broadcast);
}

/* ---- Statistics and fused graphs -------------------------------------------------------------------- */

/* y = relu(conv(x, w) + bias), with fp32 between: one rounding. Then the statistics of a stored convolution. */
static void check_fused(cudnnDataType_t type, bool statistics)
{
	const struct shape s = {2, 8, 6, 5, 16, 3, 3, 1, 0, {{1, 1}, {1, 1}, {1, 1}}};
	static struct builder b;
	struct device_tensor x, w, bias, v1, v2, y, sum, square, *all[8] = {&x, &w, &bias, &v1, &v2, &y, &sum, &square};
	cudnnBackendDescriptor_t ops[3];

	builder_begin(&b, &linked_library);
	x = new_tensor(&b, type, 2, 8, 6, 5, 0, false);
	w = new_tensor(&b, type, 16, 8, 3, 3, 0, false);
	bias = new_tensor(&b, type, 1, 16, 1, 1, 0, false);
	v1 = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 16, 6, 5, 0, true);
	v2 = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 16, 6, 5, 0, true);
	y = new_tensor(&b, type, 2, 16, 6, 5, 0, false);
	sum = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 16, 1, 1, 0, false);
	square = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 16, 1, 1, 0, false);
	fill(&x);
	fill(&w);
	fill(&bias);
	double *expected = calloc((size_t)y.n, sizeof(double));
	reference(FORWARD, &s, &x, &w, &y, expected);
	if (statistics) {
		struct device_tensor *used[5] = {&x, &w, &y, &sum, &square};

		ops[0] = make_conv(&b, FORWARD, x.descriptor, w.descriptor, y.descriptor, &s.win);
		ops[1] = make_statistics(&b, y.descriptor, sum.descriptor, square.descriptor);
		run_graph(&b, 2, ops, 5, used);
		download(&y);
		download(&sum);
		download(&square);
		for (int64_t c = 0; c < 16; c++) {
			double one = 0, two = 0;

			for (int64_t i = 0; i < y.n; i++) {
				one += i / 30 % 16 == c ? y.values[i] : 0;
				two += i / 30 % 16 == c ? y.values[i] * y.values[i] : 0;
			}
			assert_true(fabs(sum.values[c] - one) < 1e-4);
			assert_true(fabs(square.values[c] - two) < 1e-4 * two);
		}
	} else {
		struct device_tensor *used[6] = {&x, &w, &bias, &v1, &v2, &y};

		/* The order of operations in the list does not matter. */
		ops[2] = make_conv(&b, FORWARD, x.descriptor, w.descriptor, v1.descriptor, &s.win);
		ops[0] = make_pointwise(&b, CUDNN_POINTWISE_ADD, v1.descriptor, bias.descriptor, NULL, v2.descriptor);
		ops[1] = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, v2.descriptor, NULL, NULL, y.descriptor);
		run_graph(&b, 3, ops, 6, used);
		download(&y);
		for (int64_t i = 0; i < y.n; i++)
			expected[i] = fmax(expected[i] + bias.values[i / 30 % 16], 0);
	}
	struct plan plain = {.numerical = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
	assert_true(distance(&y, expected) <= tolerance(type, &plain));
	free(expected);
	for (int i = 0; i < 8; i++)
		free_tensor(all[i]);
	builder_end(&b);
}

static void test_fused(void **state)
{
	(void)state;
	for (int t = 0; t < 3; t++)
		for (int statistics = 0; statistics < 2; statistics++)
			check_fused(types[t], statistics);
}

/* dw = 2 filter(x, dy) + dw / 2: the gradients that were there are read. */
static void test_accumulation(void **state)
{
	const struct shape s = {2, 8, 6, 5, 16, 3, 3, 1, 0, {{1, 1}, {1, 1}, {1, 1}}};
	static struct builder b;
	struct device_tensor x, w, y, *all[3] = {&x, &w, &y};
	cudnnBackendDescriptor_t op;

	(void)state;
	builder_begin(&b, &linked_library);
	x = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 8, 6, 5, 0, false);
	w = new_tensor(&b, CUDNN_DATA_FLOAT, 16, 8, 3, 3, 0, false);
	y = new_tensor(&b, CUDNN_DATA_FLOAT, 2, 16, 6, 5, 0, false);
	for (int i = 0; i < 3; i++)
		fill(all[i]);
	ok(cudaDeviceSynchronize());
	double *expected = calloc((size_t)w.n, sizeof(double));
	reference(FILTER, &s, &x, &w, &y, expected);
	for (int64_t i = 0; i < w.n; i++)
		expected[i] = 2 * expected[i] + w.values[i] / 2;
	op = make_scaled_conv(&b, FILTER, x.descriptor, w.descriptor, y.descriptor, &s.win, 2, 0.5f);
	run_graph(&b, 1, &op, 3, all);
	download(&w);
	assert_true(distance(&w, expected) < 1e-3);
	free(expected);
	for (int i = 0; i < 3; i++)
		free_tensor(all[i]);
	builder_end(&b);
}

/* A pointwise graph may write over what it reads. */
static void test_in_place(void **state)
{
	static struct builder b;
	struct device_tensor x, y, *all[2] = {&x, &y};
	cudnnBackendDescriptor_t op;

	(void)state;
	builder_begin(&b, &linked_library);
	x = new_tensor(&b, CUDNN_DATA_HALF, 2, 8, 6, 5, 0, false);
	y = new_tensor(&b, CUDNN_DATA_HALF, 2, 8, 6, 5, 0, false);
	fill(&x);
	ok(cudaDeviceSynchronize());
	ok(cudaFree(y.memory));
	y.memory = x.memory;
	op = make_pointwise(&b, CUDNN_POINTWISE_RELU_FWD, x.descriptor, NULL, NULL, y.descriptor);
	run_graph(&b, 1, &op, 2, all);
	download(&y);
	for (int64_t i = 0; i < y.n; i++)
		assert_true(y.values[i] == fmax(x.values[i], 0));
	y.memory = NULL;
	free_tensor(&x);
	free_tensor(&y);
	builder_end(&b);
}

/* Each of the 65536 numbers of 16 bits survives, and halfway cases between neighbours round to even. */
static void test_conversions(void **state)
{
	(void)state;
	for (int t = 1; t < 3; t++) {
		static struct builder b;
		struct device_tensor x, y, *all[2] = {&x, &y};
		cudnnBackendDescriptor_t op;

		builder_begin(&b, &linked_library);
		x = new_tensor(&b, CUDNN_DATA_FLOAT, 1, 1 << 16, 1, 2, 0, false);
		y = new_tensor(&b, types[t], 1, 1 << 16, 1, 2, 0, false);
		float *host = calloc((size_t)x.n, sizeof(float));
		for (uint32_t u = 0; u < 1 << 16; u++) {
			double v = decode(types[t], u), above = decode(types[t], (u + 1) & 0xffff);
			bool is_pair = isfinite(v) && isfinite(above) && (u & 0x7fff) != 0x7fff;

			host[u] = (float)v;
			host[(1 << 16) + u] = is_pair ? (float)((v + above) / 2) : 0;
			x.values[2 * u] = (double)host[u];
			x.values[2 * u + 1] = round_to(types[t], (double)host[(1 << 16) + u]);
		}
		ok(cudaMemcpy(x.memory, host, x.bytes, cudaMemcpyHostToDevice));
		op = make_pointwise(&b, CUDNN_POINTWISE_IDENTITY, x.descriptor, NULL, NULL, y.descriptor);
		run_graph(&b, 1, &op, 2, all);
		download(&y);
		for (int64_t i = 0; i < y.n; i++) {
			if (isnan(x.values[i]) ? !isnan(y.values[i]) : y.values[i] != x.values[i])
				fail_msg("type %d: %a became %a", (int)types[t], x.values[i], y.values[i]);
		}
		free(host);
		free_tensor(&x);
		free_tensor(&y);
		builder_end(&b);
	}
}

static int set_up(void **state)
{
	(void)state;
	cudnn_ok(cudnnCreate(&handle));
	stream = new_stream();
	cudnn_ok(cudnnSetStream(handle, stream));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	cudnn_ok(cudnnDestroy(handle));
	ok(cudaStreamDestroy(stream));
	return soft_cudnn_live() || soft_gpu_live();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions), cmocka_unit_test(test_pointwise),
					   cmocka_unit_test(test_fused),        cmocka_unit_test(test_accumulation),
					   cmocka_unit_test(test_in_place),     cmocka_unit_test(test_conversions)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
