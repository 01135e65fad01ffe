#include "tests/nn/onednn_check.h"

#include "nn/onednn/kernels/norm_kernels.h"

#define CONVNET                                                                                                 \
	"conv2d 16 kernel=5 padding=2;batch_norm;relu;max_pool 2;conv2d 20 kernel=5 padding=2;batch_norm;relu;" \
	"max_pool 2;flatten;linear 10"
#define MIXED                                                                                                     \
	"conv2d 6 kernel=3 padding=1 name=a;relu name=r;conv2d 6 kernel=3 padding=1;add from=r;relu;dropout 0.3;" \
	"avg_pool 2;flatten;linear 33;relu;dropout 0.5;linear 10"

struct ct_batch batch_of(const struct bench *b, const struct job *j)
{
	return (struct ct_batch){.n = j->n,
				 .x = j->kind == CT_INPUT_U8_NHWC ? (const void *)b->bytes : b->floats,
				 .labels = b->labels,
				 .first = 50};
}

void bench_open(struct bench *b, const struct job *j)
{
	const struct ct_net_opts opts = {.batch = j->batch,
					 .input = j->kind,
					 .mean = {0.3f, 0.4f},
					 .std = {0.5f, 0.6f},
					 .seed = 5,
					 .train = true,
					 .plan = j->plan};
	const struct ct_optim_opts sgd = {
		.kind = CT_SGD, .momentum = 0.9f, .weight_decay = 1e-2f, .decay_norm_bias = true};
	size_t elems = shape_elems(j->input) * (size_t)j->n;

	*b = (struct bench){.floats = CT_NEW_ARRAY(float, elems),
			    .bytes = CT_NEW_ARRAY(uint8_t, elems),
			    .labels = CT_NEW_ARRAY(int32_t, (size_t)j->n)};
	fill_floats(1, b->floats, elems);
	fill_bytes(2, b->bytes, elems);
	fill_labels(3, b->labels, (size_t)j->n, 10);
	b->r.graph = graph_make(j->input, j->layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	assert_ok(ct_device_open("cpu", 0, &b->r.device));
	assert_ok(ct_engine_open(j->engine, b->r.device, j->threads, &b->r.engine));
	assert_ok(ct_net_create(b->r.engine, b->r.graph, &opts, &b->r.net));
	assert_ok(ct_net_init(b->r.net, CT_INIT_PYTORCH, 1));
	vary_norms(b->r.net);
	assert_ok(ct_program_create(b->r.net, j->n, CT_TRAIN, &b->r.program));
	assert_ok(ct_optim_create(b->r.net, &sgd, &b->optim));
}

void bench_close(struct bench *b)
{
	ct_optim_destroy(b->optim);
	rig_close(&b->r);
	ct_free(b->floats);
	ct_free(b->bytes);
	ct_free(b->labels);
}

void step(struct bench *b, const struct job *j, bool accumulate)
{
	const struct ct_backward_opts back = {.scale = 1.0f / (float)j->n, .accumulate = accumulate};
	const struct ct_batch batch = batch_of(b, j);

	assert_ok(forward_now(b->r.program, &batch, &b->metrics));
	assert_ok(ct_program_backward(b->r.program, &back));
	assert_ok(update_now(b->optim, 0.1f, NULL));
}

void run(struct bench *b, const struct job *j)
{
	bench_open(b, j);
	for (int i = 0; i < j->steps; i++)
		step(b, j, false);
}

double largest(const float *x, const float *minus, size_t n)
{
	double max = 0;

	for (size_t k = 0; k < n; k++) {
		double d = fabs((double)x[k] - (minus ? (double)minus[k] : 0));

		max = d > max ? d : max;
	}
	return max;
}

/* Of the tensor's largest magnitude, or of a hundredth of the largest of all: a bias before a norm has a gradient of
 * zero. */
static double worst_difference(struct bench *a, struct bench *b, bool grads)
{
	double worst = 0, floor = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < ct_graph_n_params(a->r.graph); i++) {
			size_t n = ct_graph_param(a->r.graph, i)->n;
			float *x = export_param(
				a->r.net, grads ? on_host(ct_net_grads(a->r.net)) : on_host(ct_net_params(a->r.net)),
				i);
			float *y = export_param(
				b->r.net, grads ? on_host(ct_net_grads(b->r.net)) : on_host(ct_net_params(b->r.net)),
				i);
			double size = largest(x, NULL, n), error;

			if (pass == 0) {
				floor = size / 100 > floor ? size / 100 : floor;
			} else {
				error = largest(x, y, n) / (size > floor ? size : floor);
				worst = error > worst ? error : worst;
			}
			ct_free(x);
			ct_free(y);
		}
	}
	return worst;
}

void assert_equals_ref(const struct job *j, double tolerance)
{
	struct job ref = *j;
	struct bench a, b;

	ref.engine = "ref";
	ref.batch = ref.n;
	run(&a, &ref);
	run(&b, j);
	double params = worst_difference(&a, &b, false), grads = worst_difference(&a, &b, true);
	double loss = fabs(a.metrics.loss - b.metrics.loss) / a.metrics.loss, buffers = 0;
	for (size_t i = 0; i < ct_arena_elems(ct_net_buffers(a.r.net)); i++) {
		double error =
			fabs((double)on_host(ct_net_buffers(a.r.net))[i] - (double)on_host(ct_net_buffers(b.r.net))[i]);

		buffers = error > buffers ? error : buffers;
	}
	if (!(params < tolerance) || !(grads < tolerance) || !(loss < tolerance) || !(buffers < tolerance))
		fail_msg("%s: off from ref by %.1e (parameters), %.1e (gradients), %.1e (loss), %.1e (statistics)",
			 j->layers, params, grads, loss, buffers);
	bench_close(&a);
	bench_close(&b);
}

const struct job convnet = {.engine = "onednn",
			    .layers = CONVNET,
			    .input = {1, 20, 20},
			    .threads = 1,
			    .batch = 8,
			    .n = 8,
			    .kind = CT_INPUT_F32_NCHW,
			    .steps = 3};
const struct job mixed = {.engine = "onednn",
			  .layers = MIXED,
			  .input = {2, 9, 7},
			  .threads = 1,
			  .batch = 6,
			  .n = 6,
			  .kind = CT_INPUT_F32_NCHW,
			  .steps = 3};

int skip_without_onednn(int argc, char **argv)
{
	const int skipped = limit_isa(argc, argv); /* before oneDNN looks at the processor */
	const char *name;
	bool available = false;
	char why[128];

	if (skipped)
		return skipped;
	for (size_t i = 0; ct_engine_at(i, &name, &available, why, sizeof(why)); i++) {
		if (!strcmp(name, "onednn"))
			break;
	}
	if (available)
		return 0;
	printf("skipped: engine onednn is not available: %s\n", why);
	return 77;
}

void skip_without_norm_kernels(void)
{
	if (ct__norm_usable(false))
		return;
	print_message("this processor has no AVX2\n");
	skip();
}
