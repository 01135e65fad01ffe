/* A small net with batch norm, SGD momentum and EMA weights on the reference engine. All values are a function of the
 * step, so a test can tell which step they belong to. Include cmocka's headers before this one. */
#ifndef CT_TESTS_TRAINER_CKPT_FIXTURE_H
#define CT_TESTS_TRAINER_CKPT_FIXTURE_H

#include "base/random/normal.h"
#include "nn/models/model.h"
#include "tests/nn/on_host.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/snapshot_impl.h"

struct fixture {
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema;
	struct ct_train_state state;
};

static inline enum ct_status fixture_try_open(struct fixture *f, const char *model, int n_outputs, float momentum)
{
	struct ct_model_spec spec = {.name = model, .input = {1, 8, 8}, .n_outputs = n_outputs};
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .std = {1, 1, 1, 1}, .train = true};
	struct ct_optim_opts sgd = {.kind = CT_SGD, .momentum = momentum};

	CT_TRY(ct_device_open("cpu", 0, &f->device));
	CT_TRY(ct_engine_open("ref", f->device, 1, &f->engine));
	CT_TRY(ct_model_build(&spec, &f->graph));
	CT_TRY(ct_net_create(f->engine, f->graph, &opts, &f->net));
	CT_TRY(ct_net_init(f->net, CT_INIT_PYTORCH, 1));
	CT_TRY(ct_optim_create(f->net, &sgd, &f->optim));
	CT_TRY(ct_ema_create(f->net, 0.9f, &f->ema));
	return CT_OK;
}

static inline void fixture_close(struct fixture *f)
{
	ct_ema_destroy(f->ema);
	ct_optim_destroy(f->optim);
	ct_net_destroy(f->net);
	ct_graph_destroy(f->graph);
	ct_engine_close(f->engine);
	ct_device_close(f->device);
}

static inline void fixture_fill_arena(struct fixture *f, float *arena, uint32_t key, uint32_t step)
{
	for (int i = 0; i < ct_graph_n_params(f->graph); i++) {
		size_t n = ct_graph_param(f->graph, i)->n;
		float *logical = ct_calloc(n, sizeof(float));
		struct ct_rng r;

		ct_rng_init(&r, 7, CT_RNG_TEST, step, key * 1000 + (uint32_t)i);
		for (size_t k = 0; k < n; k++)
			logical[k] = ct_rng_normal(&r);
		CT_ASSERT(import_now(f->net, arena, i, logical) == CT_OK);
		ct_free(logical);
	}
}

static inline void fixture_fill_buffers(struct fixture *f, float *buffers, uint32_t key, uint32_t step)
{
	struct ct_rng r;

	ct_rng_init(&r, 7, CT_RNG_TEST, step, key * 1000 + 999);
	for (size_t k = 0; k < ct_arena_elems(ct_net_buffers(f->net)); k++)
		buffers[k] = ct_rng_uniform(&r);
}

/* Sets all values to those of the given step. */
static inline void fixture_set_step(struct fixture *f, uint32_t step)
{
	fixture_fill_arena(f, on_host(ct_net_params(f->net)), 1, step);
	fixture_fill_arena(f, on_host(ct_optim_state(f->optim, 0)), 2, step);
	fixture_fill_arena(f, on_host(ct_ema_params(f->ema)), 3, step);
	fixture_fill_buffers(f, on_host(ct_net_buffers(f->net)), 4, step);
	fixture_fill_buffers(f, on_host(ct_ema_buffers(f->ema)), 5, step);
	ct_optim_set_steps(f->optim, step);
	f->state =
		(struct ct_train_state){.step = step, .epoch = 1, .optim_steps = step, .global_batch = 4, .world = 2};
}

/* Returns true if all values are those of the given step. */
static inline bool fixture_is_step(struct fixture *f, uint32_t step)
{
	size_t arena = ct_net_arena_elems(f->net) * sizeof(float),
	       buffers = ct_arena_elems(ct_net_buffers(f->net)) * sizeof(float);
	const float *now[] = {on_host(ct_net_params(f->net)), on_host(ct_optim_state(f->optim, 0)),
			      on_host(ct_ema_params(f->ema)), on_host(ct_net_buffers(f->net)),
			      on_host(ct_ema_buffers(f->ema))};
	size_t bytes[] = {arena, arena, arena, buffers, buffers};
	void *saved[CT_ARRAY_LEN(now)];
	bool same = ct_optim_steps(f->optim) == step;

	for (size_t i = 0; i < CT_ARRAY_LEN(now); i++) {
		saved[i] = ct_calloc(bytes[i], 1);
		memcpy(saved[i], now[i], bytes[i]);
	}
	fixture_set_step(f, step);
	for (size_t i = 0; i < CT_ARRAY_LEN(now); i++) {
		same = same && memcmp(saved[i], now[i], bytes[i]) == 0;
		ct_free(saved[i]);
	}
	return same;
}

/* Saves a checkpoint as the writer does, but in the calling thread, because some tests trace its system calls. out may
 * be NULL. */
static inline enum ct_status save_now(const char *run, const struct ct_checkpoint_source *src, int keep_last, bool best,
				      struct ct_checkpoint_result *out)
{
	struct ct_checkpoint_result result = {0};
	struct ct_snapshot snapshot = {0};
	enum ct_status st = ct__snapshot_take(src, &snapshot);

	if (st == CT_OK)
		st = ct__snapshot_write(run, &snapshot, keep_last, best, &result);
	ct__snapshot_release(&snapshot);
	if (out)
		*out = result;
	else
		ct_free(result.path);
	return st;
}

static inline enum ct_status fixture_save(struct fixture *f, const char *run, uint32_t step, int keep_last, bool best)
{
	struct ct_checkpoint_source src = {.net = f->net,
					   .optim = f->optim,
					   .ema = f->ema,
					   .state = &f->state,
					   .config_lines = "model.name=convnet\noptim.lr=0.1\n"};

	fixture_set_step(f, step);
	return save_now(run, &src, keep_last, best, NULL);
}

/* Loads the newest complete checkpoint, compares all values with those of its step, and returns the step. Returns 0 if
 * there is no checkpoint, and -1 if the checkpoint cannot be loaded or a value differs. */
static inline int64_t fixture_newest(struct fixture *f, const char *run)
{
	struct ct_train_state state;
	int64_t step = -1;
	char *path;

	if (ct_checkpoint_find(run, &path) < 0)
		return -1;
	if (!path)
		return 0;
	if (ct_checkpoint_load_state(path, &state, NULL) == CT_OK &&
	    ct_checkpoint_load(path, f->net, f->optim, f->ema) == CT_OK && fixture_is_step(f, (uint32_t)state.step))
		step = (int64_t)state.step;
	ct_free(path);
	return step;
}

/* Returns the number of names in RUN/checkpoints that start with `prefix`, or -1 if the directory cannot be read. */
static inline int count_names(const char *run, const char *prefix)
{
	char *folder = ct_path_join(run, "checkpoints"), **names;
	int count = 0;
	size_t n;

	if (ct_dir_list(folder, &names, &n) < 0) {
		ct_free(folder);
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		count += strncmp(names[i], prefix, strlen(prefix)) == 0;
	ct_dir_list_free(names, n);
	ct_free(folder);
	return count;
}

#endif
