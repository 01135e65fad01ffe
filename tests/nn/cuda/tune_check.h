/* Starts of a training program whose plans are chosen, on the software GPU with the stand-in of cuDNN. */
#ifndef CT_TESTS_NN_CUDA_TUNE_CHECK_H
#define CT_TESTS_NN_CUDA_TUNE_CHECK_H

#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/cuda/plan_cache_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { MAX_CHOICES = 16 };

static const char default_layers[] = "conv2d 8 kernel=3;relu;conv2d 8 kernel=3;linear 10";
static const char *layers = default_layers;
static void (*progress)(void *user, size_t done, size_t total); /* ct_net_opts.tuning */

/* What one start of a training program has done. */
struct start {
	enum ct_status status;
	int executions;        /* of plans, all of them for tuning */
	int heuristics, plans; /* that cuDNN has run and made */
	int n;
	char config[MAX_CHOICES][CT__CUDNN_CONFIG_MAX];
	struct ct__cudnn_plan_info info[MAX_CHOICES];
};

static inline void compile(struct start *s, ct_graph *g, ct_engine *e, enum ct_precision precision,
			   enum ct_autotune tune)
{
	const struct ct_net_opts opts = {.batch = 2,
					 .input = CT_INPUT_F32_NCHW,
					 .train = true,
					 .precision = precision,
					 .autotune = tune,
					 .tuning = progress};
	const ct__cudnn_choices *all = ((const struct cuda_engine *)e)->choices;
	ct_program *p = NULL;
	ct_net *net;

	assert_ok(ct_net_create(e, g, &opts, &net));
	s->heuristics = -soft_cudnn_finalized(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	s->plans = -soft_cudnn_finalized(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	s->status = ct_program_create(net, 2, CT_TRAIN, &p);
	s->executions = soft_gpu_calls("cudnnBackendExecute");
	s->heuristics += soft_cudnn_finalized(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	s->plans += soft_cudnn_finalized(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	s->n = s->status < 0 ? 0 : (int)ct__cudnn_choices_count(all); /* a failed search leaves some without a plan */
	assert_true(s->n <= MAX_CHOICES);
	for (int i = 0; s->status == CT_OK && i < s->n; i++) {
		s->info[i] = *ct__cudnn_plan_info(ct__cudnn_choices_at(all, (size_t)i)->plan);
		memcpy(s->config[i], s->info[i].config, sizeof(s->config[i]));
	}
	ct_program_destroy(p);
	ct_net_destroy(net);
}

static inline struct start start_with(enum ct_precision precision, enum ct_autotune tune, const char *faults)
{
	ct_graph *g = graph_make((struct ct_shape){3, 8, 8}, layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	static struct start s;
	ct_device *device;
	ct_engine *e;

	memset(&s, 0, sizeof(s));
	soft_gpu_set_faults(NULL);
	open_engine(true, &device, &e);
	soft_gpu_set_faults(faults);
	compile(&s, g, e, precision, tune);
	soft_gpu_set_faults(NULL);
	ct_engine_close(e);
	ct_device_close(device);
	ct_graph_destroy(g);
	assert_int_equal(soft_gpu_live() + soft_cudnn_live(), 0);
	return s;
}

static inline struct start start(enum ct_precision precision, enum ct_autotune tune)
{
	return start_with(precision, tune, NULL);
}

static inline bool same_choices(const struct start *a, const struct start *b)
{
	return a->n == b->n && !memcmp(a->config, b->config, sizeof(a->config));
}

#endif
