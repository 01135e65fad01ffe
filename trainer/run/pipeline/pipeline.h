/* Pipeline parallelism: each rank computes one stage of the model (ct_graph_cut in nn/graph/graph.h). With P stages,
 * rank r computes stage r % P of replica r / P. The stages of a replica process the same batches; each replica has its
 * own share of the samples. Gradients are summed over the ranks that compute the same stage.
 *
 * A stage receives the value of its input from the previous rank and sends its output to the next one; the gradients of
 * these values go the opposite way. A transfer posts all messages of a stage that can be exchanged now, and waits for
 * all of them, so a stage never computes while a message is pending (the same as Megatron-LM without overlap). Because
 * no stage posts a message before the messages of its previous transfer are done, the stages of a replica cannot block
 * each other in a circle; tests/trainer/run/test_pipe_schedule.c checks this with messages that wait for their
 * receivers. */
#ifndef CT_TRAINER_RUN_PIPELINE_PIPELINE_H
#define CT_TRAINER_RUN_PIPELINE_PIPELINE_H

#include "dist/comm/comm.h"
#include "nn/engine.h"
#include "trainer/plan/run_plan.h"

struct ct_pipeline {
	struct ct_stages stages; /* of this rank */
	ct_comm *world;          /* borrowed: messages between stages */
	ct_device *device;       /* borrowed */
	struct ct_world part;    /* the ranks that compute the same stage */
	ct_graph *whole;         /* the complete model, for the images of the first epoch */
	int n_contexts;          /* micro-batches in flight */
	int first[CT_MAX_STAGES + 1];
	/* Host memory (ct_device_host_alloc) for the values at both ends of the stage: its inputs, its output, the
	 * gradient of the output, and the gradient of the input; NULL where the pipeline ends. A CPU has an input for
	 * each context, because the backward pass reads it again. */
	float *x[CT_MAX_STAGES], *y, *dy, *dx;
	int n_inputs;
	size_t in_elems, out_elems; /* of one row; 0 at the ends of the pipeline */
	size_t x_room, y_room;      /* elements that the arrays above have */
};

/* Makes the world of the ranks that compute the same stage. Borrows the communicator of all ranks, and the device. */
enum ct_status ct_pipeline_create(const struct ct_world *w, ct_comm *world, ct_device *device,
				  const struct ct_stages *stages, uint32_t n_micros,
				  struct ct_pipeline **out) CT_MUST_CHECK;
void ct_pipeline_destroy(struct ct_pipeline *p);
/* Replaces the graph of a model by the graph of this rank's stage. The first graph determines the cuts; it becomes
 * p->whole. Later graphs are the same model for other image sizes. */
enum ct_status ct_pipeline_take_stage(struct ct_pipeline *p, ct_graph **g) CT_MUST_CHECK;
/* Sets the options of the net of a stage. */
void ct_pipeline_net_opts(const struct ct_stages *stages, uint32_t n_micros, struct ct_net_opts *o);
/* Provides memory for programs of this graph for n rows, which is the one of the following passes. */
enum ct_status ct_pipeline_reserve(struct ct_pipeline *p, const ct_graph *stage, int rows) CT_MUST_CHECK;
/* Returns the input of a context. NULL: the programs of the first stage read the images of the loader. */
float *ct_pipeline_input(const struct ct_pipeline *p, int context);
bool ct_pipeline_is_first(const struct ct_pipeline *p);
bool ct_pipeline_is_last(const struct ct_pipeline *p);

/* A transfer. Each function posts one message of `rows` rows, or none at the end of the pipeline.
 * ct_pipeline_wait waits for all of them. */
struct ct_transfer {
	ct_work *works[2];
	int n;
};
enum ct_status ct_pipeline_send_output(struct ct_pipeline *p, int rows, struct ct_transfer *t) CT_MUST_CHECK;
enum ct_status ct_pipeline_receive_input(struct ct_pipeline *p, int context, int rows,
					 struct ct_transfer *t) CT_MUST_CHECK;
enum ct_status ct_pipeline_send_gradient(struct ct_pipeline *p, int rows, struct ct_transfer *t) CT_MUST_CHECK;
enum ct_status ct_pipeline_receive_gradient(struct ct_pipeline *p, int rows, struct ct_transfer *t) CT_MUST_CHECK;
enum ct_status ct_pipeline_wait(struct ct_transfer *t) CT_MUST_CHECK;

/* Adds up *v over the stages of the model, on all ranks: for the norm of the gradient, in which all replicas have the
 * same gradients. user: the pipeline. */
enum ct_status ct_pipeline_sum_stages(void *user, double *v) CT_MUST_CHECK;
/* Fails with CT_MISMATCH if the ranks of the group, which compute the same stage, have different strings. */
enum ct_status ct_pipeline_check_same(ct_comm *group, const char digest[65]) CT_MUST_CHECK;

#endif
