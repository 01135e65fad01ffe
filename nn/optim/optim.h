/* Optimizers: one fused pass over parameter, gradient and state arenas of a net. State arenas have the parameter
 * arena's layout, so ct_net_export / ct_net_import move them by name. Formulas are torch.optim.SGD's (dampening 0)
 * and AdamW's; coefficients are computed in double and rounded to float once a step, as there. Results do not depend
 * on the vector width of the machine.
 *
 * For large batches, with g the gradient after clipping and |x| the L2 norm over one parameter tensor:
 *   LARS  You, Gitman, Ginsburg, "Large batch training of convolutional networks", 2017, in the form of NVIDIA Apex
 *         (LARC without clipping): SGD with momentum, outside of which the learning rate stands, on the gradient
 *             q (g + weight_decay w),   q = trust |w| / (|g| + weight_decay |w| + 1e-8)
 *         where |w| or |g| is 0, on g itself
 *   LAMB  You et al., "Large batch optimization for deep learning", 2020, algorithm 2 with phi(z) = z:
 *             u = m' / (sqrt(v') + eps) + weight_decay w,   w -= lr |w| / |u| u
 *         m', v' the bias-corrected means of Adam; where |w| or |u| is 0, w -= lr u
 * Weights of linear and convolution layers are treated so. Biases and batch-norm parameters are neither adapted nor
 * decayed: SGD with momentum, and Adam. */
#ifndef CT_NN_OPTIM_OPTIM_H
#define CT_NN_OPTIM_OPTIM_H

#include "nn/engine.h"

#define CT_OPTIMIZERS(X) X(CT_SGD, "sgd") X(CT_ADAMW, "adamw") X(CT_LARS, "lars") X(CT_LAMB, "lamb")
enum ct_optim_kind { CT_OPTIMIZERS(CT_CHOICE_ID) };

struct ct_optim_opts {
	enum ct_optim_kind kind;
	double momentum;          /* SGD, LARS, [0,1) */
	bool nesterov;            /* SGD; needs momentum */
	double weight_decay;      /* SGD, LARS: added to the gradient (L2); AdamW, LAMB: decoupled */
	bool decay_norm_bias;     /* SGD, AdamW; false: no decay on biases and batch-norm parameters */
	double beta1, beta2, eps; /* AdamW, LAMB */
	double trust;             /* LARS, above 0; usual: 0.001 */
	double clip_norm;         /* global L2 norm of the gradient, as torch.nn.utils.clip_grad_norm_; 0 off */
};

typedef struct ct_optim ct_optim;

enum ct_status ct_optim_create(ct_net *net, const struct ct_optim_opts *opts,
			       ct_optim **out) CT_MUST_CHECK; /* borrows net */
void ct_optim_destroy(ct_optim *o);
/* One update with learning rate lr from the gradients in the net's arena. grad_norm (may be NULL) gets the norm before
 * clipping, computed only when asked or when clipping; a norm that is not finite while clipping is CT_NUMERIC and
 * changes nothing. */
enum ct_status ct_optim_step(ct_optim *o, double lr, double *grad_norm) CT_MUST_CHECK;
uint64_t ct_optim_steps(const ct_optim *o); /* updates done: bias correction of AdamW, LAMB */
void ct_optim_set_steps(ct_optim *o, uint64_t n);
/* State arenas by name: "momentum_buffer" (SGD, LARS with momentum); "exp_avg", "exp_avg_sq" (AdamW, LAMB). NULL past the
 * end. */
const char *ct_optim_state_name(const ct_optim *o, int i);
float *ct_optim_state(ct_optim *o, int i);
int ct_optim_n_states(const struct ct_optim_opts *opts); /* how many there will be */

/* Exponential moving average of parameters and buffers: ema = decay*ema + (1-decay)*value, one pass. */
typedef struct ct_ema ct_ema;
/* Starts as a copy of the net's values. decay in [0,1). Borrows net. */
enum ct_status ct_ema_create(ct_net *net, double decay, ct_ema **out) CT_MUST_CHECK;
void ct_ema_destroy(ct_ema *e);
void ct_ema_update(ct_ema *e);
/* Exchanges the net's parameters and buffers with the averages; call again to go back. */
void ct_ema_swap(ct_ema *e);
float *ct_ema_params(ct_ema *e); /* arena layout */
float *ct_ema_buffers(ct_ema *e);

#endif
