/* A worker's whole state: one create / destroy ladder over world, device, data, graph, engine, net, communicator,
 * reducer, optimizer. The training loop, evaluation and the benches borrow from it. */
#ifndef CT_TRAINER_LOOP_SESSION_H
#define CT_TRAINER_LOOP_SESSION_H

#include "dist/reducer.h"
#include "dist/watchdog.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/run_plan.h"

/* Scalars of a step, summed over ranks together with the gradients of the last bucket: a step needs no second all-reduce. fp32,
 * whatever the type of the gradients. */
enum ct_scalar {
	CT_SCALAR_LOSS,
	CT_SCALAR_STOP, /* requests to stop and to save */
	CT_SCALAR_SAVE,
	CT_SCALAR_BAD, /* bad samples of the epoch so far */
	CT_SCALAR_N = 16
};

struct ct_session {
	const struct ct_config *cfg;
	struct ct_run_plan plan;
	char *run_dir;
	char *config_lines;
	const struct ct_run_lock *lock; /* of the run directory, borrowed; NULL: not training, or another rank has it */
	struct ct_world world;
	ct_watchdog *watchdog; /* NULL in a world of one */
	ct_device *device;
	ct_dataset *train, *val; /* val may be NULL; train where only evaluation is wanted */
	ct_graph *graph;         /* for the images of epoch 0; only evaluating: for those of an evaluation */
	ct_graph *size_graph;    /* what `full` is compiled from where images have grown since; NULL */
	ct_graph *val_graph;     /* what `eval` is compiled from where its images have another size; NULL */
	ct_engine *engine;
	ct_comm *comm;
	ct_net *net;
	void *reduced;  /* device memory of the session for grads and scalars; NULL: the communicator's */
	ct_arena *grads, *scalars; /* scalars [CT_SCALAR_N]: right after the gradients, so that one bucket holds both */
	ct_comm *norm_comm; /* sums of synchronized batch norm, where they run in another stream than buckets; NULL: comm */
	struct ct_bucket *buckets;
	int n_buckets;
	ct_reducer *reducer;
	ct_optim *optim;
	ct_ema *ema;      /* NULL when off */
	ct_program *full; /* training program for micro_rows, and images of the epoch's size */
	struct ct_shape full_shape;
	ct_program *eval; /* made by the first evaluation */
	struct ct_train_state state;
	char *resumed_from;               /* checkpoint folder or NULL */
	double join_s, data_s, compile_s; /* how long the start took, for the log */
};

/* Joins the world of `id` (NULL: this process alone, for eval and benches), loads data, compiles, agrees with the other ranks on config, graph, data and layout. The
 * weights are fresh until ct_resume (trainer/loop/resume.h). train false: the evaluation data alone, no gradients,
 * optimizer, reducer. Borrows cfg. On failure everything is undone and the other ranks are told. */
enum ct_status ct_session_create(const struct ct_config *cfg, const struct ct_identity *id, bool train,
				 struct ct_session *out) CT_MUST_CHECK;
/* failed: leave the world without a goodbye, after ct_watchdog_report. Zeroed sessions are fine. */
void ct_session_destroy(struct ct_session *s, bool failed);
/* Compiles the training program for images of this shape, in place of the one for another. */
enum ct_status ct_session_resize(struct ct_session *s, struct ct_shape input) CT_MUST_CHECK;

static inline bool ct_session_is_root(const struct ct_session *s)
{
	return s->world.id.rank == 0;
}

/* Rank 0's parameters and running statistics to all. */
enum ct_status ct_session_share_weights(struct ct_session *s) CT_MUST_CHECK;
/* Rank 0's host memory or arena to all, for the rare collectives outside the step; wait. */
enum ct_status ct_session_broadcast(struct ct_session *s, void *buf, size_t bytes) CT_MUST_CHECK;
enum ct_status ct_session_broadcast_arena(struct ct_session *s, ct_arena *a) CT_MUST_CHECK;
void ct_session_phase(struct ct_session *s, const char *phase, uint64_t step);

#endif
