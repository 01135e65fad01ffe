/* Optimizers, which update the parameter and state arenas of a net from its gradient arena. State arenas have the
 * layout of the parameter arena, so ct_net_export and ct_net_import can convert them as well. The formulas are those of
 * torch.optim.SGD (with dampening 0), Adam and AdamW. As in PyTorch, coefficients are computed in double and rounded to
 * float once per step. Results depend neither on the vector width of the machine nor on the number of threads.
 *
 * An update is posted to the engine's stream, and the device decides whether to apply it. If the loss is not finite, or
 * if the gradient norm is not finite while clipping or opts.check_norm is on, this update and all later ones change
 * nothing. This includes updates of the EMA weights. Therefore the weights keep their last good values, no matter how
 * late the host notices the problem.
 *
 * With precision fp16, small gradients would be rounded to 0. Therefore the backward pass multiplies the gradient of
 * the loss by the loss scale, and the update divides the gradients by it, before their norm is computed and clipped
 * (Micikevicius et al., "Mixed precision training", 2018). The scale is device memory and is adjusted by the update, as
 * by torch.amp.GradScaler: if a gradient, summed over all ranks, is not finite, the update is skipped and the scale is
 * halved; after opts.loss_scale_interval updates in a row that were not skipped, it is doubled. As with PyTorch's, a
 * skipped update does not change parameters and optimizer states, and does not count in the bias correction of Adam,
 * AdamW and LAMB. The learning rate, running statistics and EMA weights advance nevertheless. If the scale falls below
 * CT_LOSS_SCALE_MIN, this update and all later ones change nothing.
 *
 * For large batches, there are two more optimizers. g is the gradient after clipping, and |x| is the L2 norm of one
 * parameter tensor:
 *   LARS  You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017, in the form of NVIDIA Apex
 *         (LARC without clipping): SGD with momentum, in which the learning rate multiplies the momentum buffer. As the
 *         gradient, it uses
 *             q (g + weight_decay w),   q = trust |w| / (|g| + weight_decay |w| + 1e-8)
 *         or g itself if |w| or |g| is 0
 *   LAMB  You et al., "Large batch optimization for deep learning", 2020, algorithm 2 with phi(z) = z:
 *             u = m' / (sqrt(v') + eps) + weight_decay w,   w -= lr |w| / |u| u
 *         m' and v' are the bias-corrected moments of Adam. If |w| or |u| is 0, then w -= lr u
 * These formulas apply to the weights of linear and convolution layers. Biases and batch-norm parameters have neither a
 * trust ratio nor weight decay. They are updated by plain SGD with momentum (LARS) or by Adam (LAMB). */
#ifndef CT_NN_OPTIM_OPTIM_H
#define CT_NN_OPTIM_OPTIM_H

#include "nn/engine.h"

#define CT_OPTIMIZERS(X) X(CT_SGD, "sgd") X(CT_ADAMW, "adamw") X(CT_LARS, "lars") X(CT_LAMB, "lamb") X(CT_ADAM, "adam")
enum ct_optim_kind { CT_OPTIMIZERS(CT_CHOICE_ID) };
enum { CT_N_OPTIMIZERS = CT_CHOICE_COUNT(CT_OPTIMIZERS) };
/* Returns the learning rate of an optimizer for which none is given. */
double ct_optim_default_lr(enum ct_optim_kind kind);

struct ct_optim_opts {
	enum ct_optim_kind kind;
	double momentum;          /* SGD, LARS, [0,1) */
	bool nesterov;            /* SGD; needs momentum */
	double weight_decay;      /* SGD, Adam, LARS: added to the gradient (L2); AdamW, LAMB: decoupled */
	bool decay_norm_bias;     /* SGD, Adam, AdamW; false: no decay on biases and batch-norm parameters */
	double beta1, beta2, eps; /* Adam, AdamW, LAMB */
	double trust;             /* trust coefficient of LARS, above 0; usually 0.001 */
	double clip_norm; /* limit of the gradient's global L2 norm, as in torch.nn.utils.clip_grad_norm_; 0: off */
	bool check_norm;  /* stop if the norm of the gradient is not finite, even without clipping */
	/* Precision fp16 only: initial loss scale, and number of updates without overflow after which it is doubled. */
	double loss_scale;
	uint32_t loss_scale_interval;
	/* [n_lr_factors] "PATTERN=FACTOR": the learning rate of parameters whose names match the pattern
	 * (ct_graph_param_matches) is multiplied by the factor. The last rule that matches counts. Borrowed. */
	const char *const *lr_factors;
	int n_lr_factors;
};
/* Fails with CT_CONFIG if a rule is not of this form, or if no parameter of g matches it. If g is NULL, only the form
 * is checked. */
enum ct_status ct_lr_factors_check(const char *const *rules, int n, const ct_graph *g) CT_MUST_CHECK;
/* Returns the factor of a parameter. The rules are valid. */
double ct_lr_factor_of(const char *const *rules, int n, const ct_graph *g, int param);
#define CT_LOSS_SCALE_MIN 1e-4 /* the default of fairseq's --min-loss-scale */

typedef struct ct_optim ct_optim;

enum ct_status ct_optim_create(ct_net *net, const struct ct_optim_opts *opts,
			       ct_optim **out) CT_MUST_CHECK; /* borrows net */
void ct_optim_destroy(ct_optim *o);
ct_net *ct_optim_net(const ct_optim *o);
/* Makes each update check that the loss is finite. When an update runs, element i of `scalars` (CT_F32) must contain
 * the loss, summed over all ranks. */
void ct_optim_watch_loss(ct_optim *o, const ct_arena *scalars, size_t i);
/* If the net is a stage of a pipeline, the norm of the gradient also includes the other stages: sum(user, &s) adds up
 * s, the sum of the squares, over the stages. It is called by updates that compute the norm. Only on the CPU device. */
void ct_optim_sum_stages(ct_optim *o, enum ct_status (*sum)(void *user, double *s), void *user);
/* Begins the next update: writes its number and its learning rate to args. Post args (ct_net_post_step_args) before
 * the update. */
void ct_optim_begin(ct_optim *o, double lr, struct ct_step_args *args);
/* Posts one update, which uses the gradients in the net's arena, and the number and the learning rate in the step
 * arguments. If opts.clip_norm is above 0, opts.check_norm is set, the loss is scaled, or, on CPUs, the step arguments
 * request it, it also computes the norm of the gradient before clipping. */
enum ct_status ct_optim_post(ct_optim *o) CT_MUST_CHECK;
/* Call this when a recording of the update is posted again. Marks the parameters and states as changed. */
void ct_optim_posted_again(ct_optim *o);

/* The outcome of an update: done, or the reason why it changed nothing. After SKIPPED, training goes on. */
enum ct_update_outcome {
	CT_UPDATE_DONE,
	CT_UPDATE_BAD_LOSS,
	CT_UPDATE_BAD_NORM,
	CT_UPDATE_BAD_SCALE,
	CT_UPDATE_SKIPPED
};
/* The results of the last update: CT_F32 [CT_UPDATE_RESULTS] in device memory. */
enum {
	CT_UPDATE_NORM,        /* gradient norm before clipping; -1 if it was not computed */
	CT_UPDATE_OUTCOME,     /* enum ct_update_outcome */
	CT_UPDATE_SCALE,       /* loss scale of the next step; 0 if the loss is not scaled */
	CT_UPDATE_SCALE_STEPS, /* number of updates since the scale last changed */
	CT_UPDATE_N_SKIPPED,   /* number of skipped updates of the run */
	CT_UPDATE_WEIGHT_NORM, /* norm of the trained weights before the update; -1 if it was not computed */
	CT_UPDATE_RESULTS
};
ct_arena *ct_optim_result(ct_optim *o);
/* Makes the updates store their results in this device memory, so that one copy can read them together with other
 * values. Borrows the memory. Call it before the first update. */
enum ct_status ct_optim_place_result(ct_optim *o, float *memory) CT_MUST_CHECK;

/* Returns true if the precision of the net needs a loss scale. */
bool ct_optim_scales_loss(const ct_optim *o);
/* Continues with the loss scale and the counters of a checkpoint (CT_UPDATE_SCALE, ...). Waits for the posted work. */
enum ct_status ct_optim_set_loss_scale(ct_optim *o, double scale, uint32_t steps, uint64_t n_skipped) CT_MUST_CHECK;
uint64_t ct_optim_steps(
	const ct_optim *o); /* number of updates begun; the bias correction of Adam, AdamW and LAMB needs it */
void ct_optim_set_steps(ct_optim *o, uint64_t n);
/* The name of state arena i: "momentum_buffer" (SGD and LARS with momentum), or "exp_avg" and "exp_avg_sq" (Adam,
 * AdamW, LAMB). NULL past the end. */
const char *ct_optim_state_name(const ct_optim *o, int i);
ct_arena *ct_optim_state(ct_optim *o, int i);
int ct_optim_n_states(const struct ct_optim_opts *opts); /* number of state arenas with these options */

/* EMA weights are the exponential moving average of parameters and buffers: ema = decay*ema + (1-decay)*value. Frozen
 * parameters and fixed statistics (nn/graph/graph.h) keep their initial values. */
typedef struct ct_ema ct_ema;
/* Initially, the EMA weights are a copy of the net's values. decay is in [0,1). Borrows net. */
enum ct_status ct_ema_create(ct_net *net, double decay, ct_ema **out) CT_MUST_CHECK;
void ct_ema_destroy(ct_ema *e);
/* Both functions post their work. */
enum ct_status ct_ema_update(ct_ema *e) CT_MUST_CHECK;
/* Call this when a recording of the update is posted again. Marks the EMA weights as changed. */
void ct_ema_posted_again(ct_ema *e);
enum ct_status ct_ema_restart(ct_ema *e) CT_MUST_CHECK; /* copies the net's current values */
/* Posts an exchange of the net's parameters and buffers with the EMA weights. A second call undoes it. */
enum ct_status ct_ema_swap(ct_ema *e) CT_MUST_CHECK;
ct_arena *ct_ema_params(ct_ema *e); /* in the layout of the parameter arena */
ct_arena *ct_ema_buffers(ct_ema *e);

#endif
