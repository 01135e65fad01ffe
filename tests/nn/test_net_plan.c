/* Plans as text, plans of engines, and nets that are computed by them. */
#include "nn/net_plan.h"

#include "nn/tune_plan.h"
#include "tests/nn/onednn_check.h"

#define WINOGRAD_NET \
	"conv2d 16 kernel=3 padding=1 name=a;relu;conv2d 16 kernel=3 padding=1 name=b;batch_norm;relu;flatten;linear 10"

#define GEMM_NET                                                                                                           \
	"conv2d 32 kernel=3 padding=1 bias=false name=a;batch_norm;relu;conv2d 16 kernel=3 stride=2 padding=1 bias=false " \
	"name=b;batch_norm;relu;conv2d 32 kernel=1 name=c;relu;flatten;linear 10"

static const struct ct_shape image = {16, 12, 12};

static struct ct_net_plan parsed(const char *text)
{
	struct ct_net_plan p = {0};

	assert_ok(ct_net_plan_parse(text, "test", &p));
	return p;
}

static void test_text(void **state)
{
	static const char text[] = "ctrain plan 1\nlayout blocked\nconv a winograd direct winograd\n"
				   "conv layer1.0.conv2 winograd winograd winograd\n";
	struct ct_net_plan p = parsed(text), copy;
	struct ct_str out = {0};
	char one[65], other[65], summary[64];

	(void)state;
	ct_net_plan_write(&p, &out);
	assert_string_equal(ct_str_text(&out), text);
	ct_str_release(&out);
	assert_int_equal(ct_net_plan_method(&p, "a", CT_CONV_FORWARD), CT_CONV_WINOGRAD);
	assert_int_equal(ct_net_plan_method(&p, "a", CT_CONV_BACKWARD_DATA), CT_CONV_DIRECT);
	assert_int_equal(ct_net_plan_method(&p, "b", CT_CONV_FORWARD), CT_CONV_DIRECT);
	assert_true(ct_net_plan_uses(&p, "a", CT_CONV_WINOGRAD) && !ct_net_plan_uses(&p, "b", CT_CONV_WINOGRAD));
	ct_net_plan_summary(&p, 5, summary, sizeof(summary));
	assert_string_equal(summary, "blocked, 2 of 5 convolutions with winograd");

	assert_ok(ct_net_plan_copy(&p, &copy));
	assert_ok(ct_net_plan_digest(&p, one));
	assert_ok(ct_net_plan_digest(&copy, other));
	assert_string_equal(one, other);
	assert_ok(ct_net_plan_set(&copy, "a", CT_CONV_FORWARD, CT_CONV_DIRECT));
	assert_ok(ct_net_plan_set(&copy, "a", CT_CONV_BACKWARD_WEIGHTS, CT_CONV_DIRECT));
	assert_int_equal(copy.n_convs, 1); /* a is direct in all passes, and so is not listed */
	assert_ok(ct_net_plan_digest(&copy, other));
	assert_string_not_equal(one, other);
	ct_net_plan_release(&copy);
	ct_net_plan_release(&p);
}

static void test_summary(void **state)
{
	struct ct_net_plan p = parsed("ctrain plan 1\nlayout nhwc\nconv a direct direct gemm\n");
	char summary[64];

	(void)state;
	ct_net_plan_summary(&p, 5, summary, sizeof(summary));
	assert_string_equal(summary, "nhwc, 1 of 5 convolutions with gemm");
	ct_net_plan_release(&p);
}

static void assert_compared(const char *a, const char *b, const char *expected)
{
	struct ct_net_plan x = parsed(a), y = parsed(b);
	struct ct_str found = {0};
	const char **names;
	int n;

	assert_ok(ct_net_plan_compare(&x, &y, &names, &n));
	for (int i = 0; i < n; i++)
		ct_str_addf(&found, "%s ", names[i]);
	assert_string_equal(ct_str_text(&found), expected);
	ct_str_release(&found);
	ct_free((void *)names);
	ct_net_plan_release(&x);
	ct_net_plan_release(&y);
}

static void test_compare(void **state)
{
#define BLOCKED "ctrain plan 1\nlayout blocked\n"
	static const char *const some = BLOCKED "conv a winograd direct direct\nconv b winograd winograd winograd\n";

	(void)state;
	assert_compared(some, some, "");
	assert_compared(some, BLOCKED "conv b winograd winograd winograd\nconv a winograd direct direct\n", "");
	assert_compared(some, BLOCKED "conv a winograd direct winograd\nconv c direct direct winograd\n", "a b c ");
	assert_compared(BLOCKED, some, "a b ");
	assert_compared(BLOCKED, "ctrain plan 1\nlayout nhwc\n", "");
#undef BLOCKED
}

static void test_bad_text(void **state)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"", "test:1: \"ctrain plan 1\" is expected"},
		{"ctrain plan 2\n", "test:1: \"ctrain plan 1\" is expected"},
		{"ctrain plan 1\n", "test:2: \"layout blocked\" or \"layout nhwc\" is expected"},
		{"ctrain plan 1\nlayout nchw\n", "test:2: "},
		{"ctrain plan 1\nlayout nhwc x\n", "test:2: "},
		{"ctrain plan 1\nlayout nhwc\nnorm a\n", "test:3: \"conv\" is expected"},
		{"ctrain plan 1\nlayout blocked\nconv a winograd direct\n",
		 "test:3: \"conv NAME METHOD METHOD METHOD\""},
		{"ctrain plan 1\nlayout blocked\nconv a winograd direct fft\n", "test:3: "},
		{"ctrain plan 1\nlayout blocked\nconv a direct direct direct direct\n", "test:3: "},
		{"ctrain plan 1\nlayout blocked\nconv a winograd direct direct\nconv a direct direct winograd\n",
		 "test:4: the convolution a is listed twice"},
	};
	char line[400];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		struct ct_net_plan p = {0};

		assert_fails(ct_net_plan_parse(bad[i].text, "test", &p), CT_CONFIG, bad[i].message);
		assert_null(p.convs);
	}
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	struct ct_net_plan p = {0};
	assert_fails(ct_net_plan_parse(line, "test", &p), CT_CONFIG, "test:1: a shorter line is expected");
}

/* As many convolutions as a plan may list, and one more. */
static void test_longest_text(void **state)
{
	struct ct_str text = {0};
	struct ct_net_plan p = {0};

	(void)state;
	ct_str_add(&text, "ctrain plan 1\nlayout blocked\n");
	for (int i = 0; i < CT_PLAN_MAX_CONVS; i++)
		ct_str_addf(&text, "conv c%d winograd direct direct\n", i);
	assert_ok(ct_net_plan_parse(ct_str_text(&text), "test", &p));
	assert_int_equal(p.n_convs, CT_PLAN_MAX_CONVS);
	ct_net_plan_release(&p);
	ct_str_add(&text, "conv more winograd direct direct\n");
	assert_fails(ct_net_plan_parse(ct_str_text(&text), "test", &p), CT_CONFIG,
		     "test:4099: at most 4096 convolutions are possible");
	ct_str_release(&text);
}

static struct ct_net_opts opts_with(const struct ct_net_plan *plan)
{
	return (struct ct_net_opts){.batch = 8, .input = CT_INPUT_F32_NCHW, .train = true, .plan = plan};
}

enum { LOGITS = 8 * 10 };

static void evaluate(const struct rig *r, const struct ct_batch *batch, float logits[LOGITS])
{
	struct ct_metrics m = {0};
	ct_program *p;

	assert_ok(ct_program_create(r->net, 8, CT_EVAL, &p));
	assert_ok(forward_now(p, batch, &m));
	assert_ok(ct_program_read(p, ct_graph_node(r->graph, ct_graph_loss(r->graph))->in[0], false, logits));
	ct_program_destroy(p);
}

/* Sums the gradients of a full batch and of one with fewer rows, and gets those of all parameters, one after the other.
 * The logits are those of an evaluation after it. */
static float *run_net(const char *layers, const char *engine, struct ct_net_opts opts, size_t *n, float logits[LOGITS])
{
	struct ct_backward_opts back = {.scale = 1.0f / 8};
	ct_program *small;
	int32_t labels[8];
	struct rig r;
	struct ct_metrics m = {0};
	float *x = CT_NEW_ARRAY(float, 8 * shape_elems(image)), *all;

	fill_floats(1, x, 8 * shape_elems(image));
	fill_labels(2, labels, 8, 10);
	rig_open(&r, engine, graph_make(image, layers, 10, CT_LOSS_CROSS_ENTROPY, 0), &opts);
	const struct ct_batch batch = {.n = 8, .x = x, .labels = labels};
	const struct ct_batch few = {.n = 3, .x = x, .labels = labels};
	assert_ok(forward_now(r.program, &batch, &m));
	assert_ok(ct_program_backward(r.program, &back));
	back.accumulate = true;
	assert_ok(ct_program_create(r.net, 3, CT_TRAIN, &small));
	assert_ok(forward_now(small, &few, &m));
	assert_ok(ct_program_backward(small, &back));
	ct_program_destroy(small);
	all = CT_NEW_ARRAY(float, ct_graph_n_elems(r.graph));
	*n = 0;
	for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
		float *one = export_param(r.net, on_host(ct_net_grads(r.net)), i);

		memcpy(all + *n, one, ct_graph_param(r.graph, i)->n * sizeof(float));
		*n += ct_graph_param(r.graph, i)->n;
		ct_free(one);
	}
	evaluate(&r, &batch, logits);
	rig_close(&r);
	ct_free(x);
	return all;
}

static double norm_of(const float *x, const float *minus, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++) {
		const double d = (double)x[i] - (minus ? (double)minus[i] : 0);

		sum += d * d;
	}
	return sqrt(sum);
}

/* In bf16, single values differ at will where rounding decides about a ReLU, so that the norm of all of them counts. */
static void assert_close(const float *want, const float *got, size_t n, enum ct_precision precision)
{
	if (precision == CT_PRECISION_FP32)
		assert_true(largest(want, got, n) < 1e-4 * largest(want, NULL, n));
	else
		assert_true(norm_of(want, got, n) < 0.1 * norm_of(want, NULL, n));
}

/* Every combination of methods of one convolution, and NHWC, gives the gradients and the evaluation of ref. */
static void check_methods(enum ct_precision precision)
{
	float want_logits[LOGITS], got_logits[LOGITS];
	struct ct_net_opts opts = opts_with(NULL);
	const struct ct_net_plan blocked = {.layout = CT_LAYOUT_BLOCKED};
	size_t n, m;
	float *want = run_net(WINOGRAD_NET, "ref", opts, &n, want_logits);
	bool differs = false;

	opts.precision = precision;
	opts.plan = &blocked;
	float *direct = run_net(WINOGRAD_NET, "onednn", opts, &n, got_logits);
	for (int methods = 0; methods <= 8; methods++) {
		struct ct_net_plan p = {.layout = methods == 8 ? CT_LAYOUT_NHWC : CT_LAYOUT_BLOCKED};

		for (int pass = 0; pass < CT_CONV_PASSES; pass++)
			assert_ok(ct_net_plan_set(&p, "b", (enum ct_conv_pass)pass,
						  methods & 1 << pass ? CT_CONV_WINOGRAD : CT_CONV_DIRECT));
		opts.plan = &p;
		float *got = run_net(WINOGRAD_NET, "onednn", opts, &m, got_logits);
		assert_int_equal(n, m);
		assert_close(want, got, n, precision);
		assert_close(want_logits, got_logits, LOGITS, precision);
		differs = differs || memcmp(got, direct, n * sizeof(*got)) != 0;
		ct_free(got);
		ct_net_plan_release(&p);
	}
	assert_true(differs); /* the plan has an effect */
	ct_free(direct);
	ct_free(want);
}

static void test_methods(void **state)
{
	(void)state;
	check_methods(CT_PRECISION_FP32);
	if (has_precision("onednn", CT_PRECISION_BF16))
		check_methods(CT_PRECISION_BF16);
}

static void skip_without_bf16(void)
{
	if (has_precision("onednn", CT_PRECISION_BF16) && ct_cpu_has(CT_CPU_AVX512BF16))
		return;
	print_message("this processor has no bfloat16 instructions\n");
	skip();
}

/* In bf16, the gradients are as close to those of ref as with direct convolutions. They differ from these only in the
 * weights of the convolutions that the plan names. */
static void test_gemm(void **state)
{
	struct ct_net_plan p = parsed("ctrain plan 1\nlayout nhwc\nconv a direct direct gemm\n"
				      "conv b direct direct gemm\n");
	const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};
	struct ct_net_opts opts = opts_with(NULL);
	float logits[LOGITS];
	size_t n, m;

	(void)state;
	skip_without_bf16();
	float *want = run_net(GEMM_NET, "ref", opts, &n, logits);
	opts.precision = CT_PRECISION_BF16;
	opts.plan = &nhwc;
	float *direct = run_net(GEMM_NET, "onednn", opts, &m, logits);
	opts.plan = &p;
	float *got = run_net(GEMM_NET, "onednn", opts, &m, logits);
	const size_t a = (size_t)(16 * 32 * 9), b = a + 64 + (size_t)(32 * 16 * 9); /* ends of the weights */
	assert_int_equal(n, m);
	assert_true(norm_of(want, got, n) < 0.1 * norm_of(want, NULL, n));
	assert_true(norm_of(direct, got, n) < 1e-4 * norm_of(direct, NULL, n));
	assert_memory_not_equal(direct, got, a * sizeof(*got));
	assert_memory_not_equal(direct + a + 64, got + a + 64, (b - a - 64) * sizeof(*got));
	assert_memory_equal(direct + a, got + a, 64 * sizeof(*got));
	assert_memory_equal(direct + b, got + b, (n - b) * sizeof(*got));
	ct_free(got);
	ct_free(direct);
	ct_free(want);
	ct_net_plan_release(&p);
}

static void open_engine(ct_device **d, ct_engine **e)
{
	assert_ok(ct_device_open("cpu", 0, d));
	assert_ok(ct_engine_open("onednn", *d, 2, e));
	assert_true(ct_engine_has_plans(*e));
}

static void test_unusable_plans(void **state)
{
	const struct ct_net_opts opts = opts_with(NULL);
	ct_graph *g = graph_make(image, WINOGRAD_NET, 10, CT_LOSS_CROSS_ENTROPY, 0);
	ct_device *d;
	ct_engine *e;

	(void)state;
	open_engine(&d, &e);
	struct ct_net_plan unknown = parsed("ctrain plan 1\nlayout blocked\nconv c winograd direct direct\n");
	assert_fails(ct_engine_check_plan(e, &unknown, g, &opts), CT_UNSUPPORTED, "the model has no convolution c");
	struct ct_net_plan nhwc = parsed("ctrain plan 1\nlayout nhwc\nconv a winograd direct direct\n");
	assert_fails(ct_engine_check_plan(e, &nhwc, g, &opts), CT_UNSUPPORTED, "cannot compute a with winograd");
	struct ct_net_plan suggested;
	assert_ok(ct_engine_plan(e, g, &opts, &suggested));
	assert_ok(ct_engine_check_plan(e, &suggested, g, &opts));
	ct_net_plan_release(&suggested);
	ct_net_plan_release(&nhwc);
	ct_net_plan_release(&unknown);
	ct_engine_close(e);
	ct_device_close(d);
	ct_graph_destroy(g);
}

static enum ct_status check(const char *text, enum ct_precision precision)
{
	struct ct_net_opts opts = opts_with(NULL);
	ct_graph *g = graph_make(image, GEMM_NET, 10, CT_LOSS_CROSS_ENTROPY, 0);
	struct ct_net_plan p = parsed(text);
	ct_device *d;
	ct_engine *e;

	opts.precision = precision;
	open_engine(&d, &e);
	const enum ct_status st = ct_engine_check_plan(e, &p, g, &opts);
	ct_error_clear();
	ct_net_plan_release(&p);
	ct_engine_close(e);
	ct_device_close(d);
	ct_graph_destroy(g);
	return st;
}

static void test_where_gemm_is_usable(void **state)
{
	static const char usable[] = "ctrain plan 1\nlayout nhwc\nconv a direct direct gemm\n";

	(void)state;
	skip_without_bf16();
	assert_int_equal(check(usable, CT_PRECISION_BF16), CT_OK);
	assert_int_equal(check(usable, CT_PRECISION_FP32), CT_UNSUPPORTED);
	assert_int_equal(check("ctrain plan 1\nlayout blocked\nconv a direct direct gemm\n", CT_PRECISION_BF16),
			 CT_UNSUPPORTED);
	assert_int_equal(check("ctrain plan 1\nlayout nhwc\nconv a gemm direct direct\n", CT_PRECISION_BF16),
			 CT_UNSUPPORTED);
	assert_int_equal(check("ctrain plan 1\nlayout nhwc\nconv a direct gemm direct\n", CT_PRECISION_BF16),
			 CT_UNSUPPORTED);
	assert_int_equal(check("ctrain plan 1\nlayout nhwc\nconv c direct direct gemm\n", CT_PRECISION_BF16),
			 CT_UNSUPPORTED); /* it has a bias */
}

/* The plan of a model with more convolutions than a plan may list can be read again. */
static void test_deep_model(void **state)
{
	const struct ct_net_opts opts = opts_with(NULL);
	struct ct_net_plan plan, again = {0};
	struct ct_str text = {0};
	char name[16];
	ct_graph *g;
	ct_device *d;
	ct_engine *e;
	int x = 0;

	(void)state;
	assert_ok(ct_graph_create(image, &g));
	for (int i = 0; i <= CT_PLAN_MAX_CONVS; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		x = ct_graph_conv2d(g, name, x, 16, ct_window_square(3, 1, 1), 1, false);
	}
	x = ct_graph_linear(g, "fc", ct_graph_flatten(g, "flat", x), 10, true);
	ct_graph_softmax_xent(g, x, 0);
	assert_ok(ct_graph_finish(g));
	open_engine(&d, &e);
	assert_ok(ct_engine_plan_in(e, CT_LAYOUT_BLOCKED, g, &opts, &plan));
	ct_net_plan_write(&plan, &text);
	assert_ok(ct_net_plan_parse(ct_str_text(&text), "test", &again));
	assert_int_equal(plan.n_convs, again.n_convs);
	assert_true(plan.n_convs == CT_PLAN_MAX_CONVS || plan.n_convs == 0); /* 0: no kernels on this processor */
	ct_net_plan_release(&again);
	ct_net_plan_release(&plan);
	ct_str_release(&text);
	ct_engine_close(e);
	ct_device_close(d);
	ct_graph_destroy(g);
}

struct calls {
	size_t n, last, total;
};

static void count(void *user, size_t done, size_t total)
{
	struct calls *c = user;

	assert_true(done >= c->last && done <= total);
	c->n++;
	c->last = done;
	c->total = total;
}

/* A measured plan is usable, and its time is not longer than that of the suggested one. */
static void check_tuning(const char *layers, enum ct_precision precision, size_t plans)
{
	struct ct_net_opts opts = opts_with(NULL);
	ct_graph *g = graph_make(image, layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	struct calls calls = {0};
	struct ct_plan_tuning how = {.seconds = 0.5, .progress = count, .user = &calls};
	struct ct_net_plan plan;
	ct_device *d;
	ct_engine *e;

	opts.precision = precision;
	open_engine(&d, &e);
	assert_ok(ct_plan_tune(e, g, &opts, &how, &plan));
	assert_ok(ct_engine_check_plan(e, &plan, g, &opts));
	assert_true(how.chosen_s > 0 && how.chosen_s <= how.suggested_s);
	assert_true(how.rows >= 2 && how.rows <= 8);
	assert_int_equal(calls.total, plans);
	assert_true(calls.n > 2 && calls.last == calls.total);
	ct_net_plan_release(&plan);
	/* A limit of no time still measures every plan once, with fewer rows. */
	how = (struct ct_plan_tuning){.seconds = 0};
	assert_ok(ct_plan_tune(e, g, &opts, &how, &plan));
	assert_int_equal(how.rows, 2);
	ct_net_plan_release(&plan);
	ct_engine_close(e);
	ct_device_close(d);
	ct_graph_destroy(g);
}

static void test_tuning(void **state)
{
	(void)state;
	check_tuning(WINOGRAD_NET, CT_PRECISION_FP32, 5);
}

static void test_tuning_bf16(void **state)
{
	(void)state;
	skip_without_bf16();
	check_tuning(GEMM_NET, CT_PRECISION_BF16, 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),         cmocka_unit_test(test_summary),
		cmocka_unit_test(test_compare),      cmocka_unit_test(test_bad_text),
		cmocka_unit_test(test_longest_text), cmocka_unit_test(test_methods),
		cmocka_unit_test(test_gemm),         cmocka_unit_test(test_unusable_plans),
		cmocka_unit_test(test_deep_model),   cmocka_unit_test(test_where_gemm_is_usable),
		cmocka_unit_test(test_tuning),       cmocka_unit_test(test_tuning_bf16)};

	if (skip_without_onednn(argc, argv))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
