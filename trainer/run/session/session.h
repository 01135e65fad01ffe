/* The complete state of a worker: world, device, data, graph, engine, net, communicator, reducer and optimizer. They
 * are created and destroyed together. The training loop, evaluation and the benchmarks borrow them from the session.
 * Fields that are used together are in a struct ct_session_*, and a function that needs only one of these takes it
 * instead of the session. */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_H
#define CT_TRAINER_RUN_SESSION_SESSION_H

#include "base/process/rank_page.h"
#include "dist/watchdog.h"
#include "trainer/plan/run_plan.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/run/metrics/console.h"
#include "trainer/run/pipeline/pipeline.h"
#include "trainer/run/session/session_grad.h"

/* The run directory and the strings that are stored there. The session owns the strings. */
struct ct_session_run {
	char *dir;
	char *config_lines; /* ct_config_lines, for checkpoints */
	char *net_plan;     /* text of the plan of the net, for checkpoints; NULL: the engine has no plans */
	char *description;  /* of the model, for checkpoints; NULL on ranks that do not save, and without training */
	const struct ct_run_lock *lock; /* of dir, borrowed; NULL: not training, or another rank holds it */
};

/* What happens before training begins, and from what it begins. */
struct ct_session_start {
	/* Called when all ranks have joined; NULL: nothing is called. */
	enum ct_status (*joined)(const char *run_dir, const struct ct_identity *id);
	bool writes_run_dir; /* all nodes must use one run directory */
	ct_console *console; /* borrowed: shows what is done; NULL: not shown */
	bool compiled;       /* the first program has been compiled */
	/* After a restart: the newest save in the run directory when the job started (ct_checkpoint_newest_save); -1:
	 * no restart. */
	int64_t saves_before;
	char *resumed_from;               /* checkpoint directory, owned, or NULL */
	struct ct_weights_report weights; /* rank 0: what was loaded from model.weights */
	double join_s, data_s, compile_s; /* durations of the phases, for the log */
};

/* The data. The session owns all of it. */
struct ct_session_data {
	ct_dataset *train, *val; /* val may be NULL; train is NULL if only evaluation is needed */
	void *samples[2]; /* by enum ct_mode: copies of train and val in device memory; NULL: the host prepares batches
			   */
	_Atomic uint32_t *val_bad; /* ct_loader_opts.known_bad of all evaluations; NULL before the first one */
	float *class_weights;      /* [classes] of the loss on train, or NULL */
};

/* The model as graphs, and the programs that are compiled from them: those of a stage if there is a pipeline. The
 * session owns all of them. */
struct ct_session_model {
	ct_graph *graph;      /* for the image size of epoch 0, or of evaluations if there is no training */
	ct_graph *size_graph; /* graph of `full` after the image size has changed; otherwise NULL */
	ct_graph *val_graph;  /* graph of `eval` if evaluation images differ in size from those of `graph`; else NULL */
	ct_program *full;     /* training program for micro_rows rows and full_shape images */
	struct ct_shape full_shape;
	ct_program *eval; /* compiled by the first evaluation */
};

static inline const ct_graph *ct_session_train_graph(const struct ct_session_model *m)
{
	return m->size_graph ? m->size_graph : m->graph;
}

static inline const ct_graph *ct_session_eval_graph(const struct ct_session_model *m)
{
	return m->val_graph ? m->val_graph : m->graph;
}

/* The session owns what ct_session_create has created, and borrows everything else. The fields are, in this order: the
 * config and what is derived from it; the run; the ranks; the device and its engine; what is trained on them. */
struct ct_session {
	const struct ct_config *cfg;
	struct ct_run_plan plan;
	struct ct_session_run run;
	struct ct_session_start start;
	struct ct_world world;
	ct_watchdog *watchdog; /* NULL in a world of one */
	ct_comm *comm;
	ct_comm *group; /* the ranks that have the same parameters, over which gradients are summed: comm, or those of a
			   stage */
	ct_comm *norm_comm; /* for synchronized batch norm if it uses another stream than the buckets; NULL: group is
			       used */
	struct ct_pipeline *pipe; /* NULL: this rank has the complete model */
	ct_device *device;
	ct_engine *engine;
	struct ct_net_plan net_plan; /* of the whole model; stages of a pipeline use a part of it */
	struct ct_session_data data;
	struct ct_session_model model;
	ct_net *net;
	struct ct_session_grad grad;
	ct_optim *optim;
	ct_ema *ema;                 /* NULL: off */
	struct ct_step_clock *clock; /* of the step that is being posted; NULL: none */
	struct ct_train_state state;
};

/* Joins the world of `id`, opens the data, compiles the model, and checks that all ranks have the same config, graph,
 * data and layout. If id is NULL, the world is this process alone (for `ctrain eval` and benchmarks). If train is
 * false, only the evaluation data is opened, and no gradients, optimizer or reducer are created. The weights have their
 * initial values until ct_resume (trainer/run/loop/resume.h) is called. Borrows cfg. On failure, releases everything
 * and reports the failure to the other ranks. Before the call, *out must be zero, except for the members of `start`
 * that the caller may set: joined, writes_run_dir, console and saves_before. */
enum ct_status ct_session_create(const struct ct_config *cfg, const struct ct_identity *id, bool train,
				 struct ct_session *out) CT_MUST_CHECK;
/* If failed is true, reports the failure (ct_watchdog_report) and leaves the world without a normal shutdown. May be
 * called on a zeroed session. */
void ct_session_destroy(struct ct_session *s, bool failed);
/* If the size of the buckets was chosen by a measurement, replaces it with the one that the checkpoint contains (0: it
 * contains none), because the size may change the last bits of sums. Sets s->state.bucket_bytes. */
enum ct_status ct_session_resume_buckets(struct ct_session *s, uint64_t bytes) CT_MUST_CHECK;
/* Replaces the training program with one for images of this shape. */
enum ct_status ct_session_resize(struct ct_session *s, struct ct_shape input) CT_MUST_CHECK;

static inline bool ct_session_is_root(const struct ct_session *s)
{
	return s->world.id.rank == 0;
}

/* Returns the number of ranks on this host, which is at least 1. */
static inline int ct_session_local_world(const struct ct_session *s)
{
	return s->world.id.local_world > 0 ? s->world.id.local_world : 1;
}

static inline const ct_graph *ct_session_whole(const struct ct_session *s)
{
	return s->pipe ? s->pipe->whole : s->model.graph;
}

/* Returns the name of the parameter to which slice i of the arenas belongs. */
static inline const char *ct_session_slice_name(const struct ct_session *s, int i)
{
	return ct_graph_param(s->model.graph, ct_net_slice(s->net, i)->param)->name;
}

/* Returns which share of the samples this rank processes. */
static inline int ct_session_replica(const struct ct_session *s)
{
	return s->pipe ? s->pipe->stages.replica : s->world.id.rank;
}

static inline int ct_session_n_replicas(const struct ct_session *s)
{
	return s->pipe ? s->pipe->stages.n_replicas : s->world.id.world;
}

/* Returns true if this rank counts the unreadable and damaged samples of its share. The stages of a replica load the
 * same batches, so only the first one counts them. */
static inline bool ct_session_counts_samples(const struct ct_session *s)
{
	return !s->pipe || ct_pipeline_is_first(s->pipe);
}

/* Returns how training continues, as a value of train.resume. After a restart, it continues from what this job has
 * saved; otherwise, it begins as the job began. */
static inline const char *ct_session_resume_how(const struct ct_session *s)
{
	const int64_t before = s->start.saves_before;

	return before >= 0 && ct_checkpoint_newest_save(s->run.dir) > (uint64_t)before ? "auto" : s->cfg->train.resume;
}

/* Builds the graph of the model, or of this rank's stage, for images of this shape. */
enum ct_status ct_session_graph(struct ct_session *s, struct ct_shape input, ct_graph **out) CT_MUST_CHECK;
/* Broadcasts the parameters and running statistics of rank 0 or, for each stage, those of the first replica. */
enum ct_status ct_session_share_weights(struct ct_session *s) CT_MUST_CHECK;
/* Broadcast host memory from rank 0 to all ranks, or an arena from the first rank of the group to the others, and wait
 * until the broadcast has finished. Use these functions only for the rare collectives outside a step. */
enum ct_status ct_session_broadcast(struct ct_session *s, void *buf, size_t bytes) CT_MUST_CHECK;
enum ct_status ct_session_broadcast_arena(struct ct_session *s, ct_arena *a) CT_MUST_CHECK;
/* Waits until posted work no longer uses memory that is about to be freed. After a failure, posted collectives may wait
 * for other ranks, and freeing memory of a GPU would wait for the collectives: after 1 s, this function reports the
 * failure to the other ranks and aborts the collectives. Keeps the error chain. */
void ct_session_drain(struct ct_session *s);
/* Sets the phase and the number of steps that are done in the page of this rank, and sends a heartbeat if the phase has
 * changed. */
void ct_session_phase(struct ct_session *s, enum ct_rank_phase phase, uint64_t step);
/* Returns CT_INTERRUPTED with the message for a stop after a signal, or, if more_nodes is true, for that request. */
enum ct_status ct_session_stopped(struct ct_session *s, bool more_nodes);

#endif
