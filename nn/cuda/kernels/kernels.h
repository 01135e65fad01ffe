/* The CUDA kernels of the engine, for everything that cuDNN does not compute. The interface is plain C, for the engine
 * and for tests.
 *
 * Each kernel has a struct of arguments and a launcher ct__k_NAME, which posts the kernel to a stream and returns the
 * error of the launch. All pointers are device memory. Activations are [rows, cp] with rows = N*H*W: NHWC with cp >= c
 * channels, where cp * (size of an element) is a multiple of 16 bytes. The channels from c to cp - 1 are padding: if it
 * is zero in the inputs of a kernel, the kernel keeps it zero in the results. `type` is the type of activations
 * (CT_F32, CT_F16 or CT_BF16). Arithmetic is fp32; long sums are double.
 *
 * Results do not depend on the order in which blocks run, and no floating-point atomics are used: equal inputs give
 * identical bits. */
#ifndef CT_NN_CUDA_KERNELS_KERNELS_H
#define CT_NN_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/image_row.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Converts the input to y [N,H,W,cp]: uint8 [N,H,W,C] becomes (u8/255 - mean)/std, and float [N,C,H,W] keeps its
 * values. The rows n_valid to n - 1 of y become zero. */
struct ct__k_input_args {
	const void *x;
	void *y;
	int n_valid, n, h, w, c, cp;
	float mean[4], std[4];
	int bytes; /* 1: uint8 [N,H,W,C]; 0: float [N,C,H,W] */
	enum ct_dtype type;
};
cudaError_t ct__k_input(const struct ct__k_input_args *a, cudaStream_t s);

/* Converts x [N,H,W,cp] to y, float [N,C,H,W]. */
struct ct__k_output_args {
	const void *x;
	float *y;
	int n, h, w, c, cp;
	enum ct_dtype type; /* of x */
};
cudaError_t ct__k_output(const struct ct__k_output_args *a, cudaStream_t s);

/* Computes the input y [N,H,W,cp] from images in device memory, as ct__k_input does from the pixels of a batch, and
 * writes the labels and shares of the rows. base/image_row.h describes a row. There are at most 4 channels. */
struct ct__k_gather_args {
	const struct ct_image_row *rows; /* [n_valid] */
	const uint8_t *samples;          /* [...,H,W,C] */
	void *y;
	int32_t *labels, *labels_b; /* [n], NULL: not stored */
	float *mix;                 /* [n], NULL: not stored */
	int n_valid, n, h, w, c, cp;
	float mean[4], std[4];
	uint8_t fill[4]; /* value of erased pixels */
	enum ct_dtype type;
};
cudaError_t ct__k_gather(const struct ct__k_gather_args *a, cudaStream_t s);

enum ct__k_map_op {
	CT__K_ADD,           /* y = a + b */
	CT__K_RELU,          /* y = max(a, 0); NaN stays NaN */
	CT__K_ADD_RELU,      /* y = max(a + b, 0) */
	CT__K_RELU_BACKWARD, /* y = a + c where b > 0 or b is NaN, else 0: a and c are gradients, b the output of the
				ReLU */
	CT__K_MAP_N
};
/* Element-wise operations; y may be a, b or c. c may be NULL, which stands for zeros. The size of n elements must be a
 * multiple of 16 bytes. */
struct ct__k_map_args {
	enum ct__k_map_op op;
	const void *a, *b, *c;
	void *y;
	size_t n;
	enum ct_dtype type;
};
cudaError_t ct__k_map(const struct ct__k_map_args *a, cudaStream_t s);

/* y[i] = scale * x[i], converted from one type to another. */
struct ct__k_convert_args {
	const void *x;
	void *y;
	float scale;
	const float *loss_scale; /* a further factor in device memory, or NULL */
	size_t n;
	enum ct_dtype from, to;
};
cudaError_t ct__k_convert(const struct ct__k_convert_args *a, cudaStream_t s);

/* y = x + bias, followed by a ReLU if `relu` is set; y may be x. bias is fp32 [cp]. */
struct ct__k_bias_args {
	const void *x;
	const float *bias;
	void *y;
	size_t rows;
	int cp, relu;
	enum ct_dtype type;
};
cudaError_t ct__k_bias(const struct ct__k_bias_args *a, cudaStream_t s);

/* Returns the number of blocks into which column sums divide `rows` rows. This is the first dimension of the arrays of
 * partial sums. */
int ct__k_sum_blocks(size_t rows, int cp, enum ct_dtype type);

/* d = dy + dy2, or 0 where a ReLU that follows the bias has the output y <= 0; db[i] = sum over rows of d. dy2, y and d
 * may be NULL: no second gradient, no ReLU, d is not stored; d may be dy or dy2. partial is double
 * [ct__k_sum_blocks(rows, cp, type), 2, cp]. db [cp]. */
struct ct__k_bias_backward_args {
	const void *dy, *dy2, *y;
	void *d;
	double *partial;
	float *db;
	size_t rows;
	int cp;
	enum ct_dtype type;
};
cudaError_t ct__k_bias_backward(const struct ct__k_bias_backward_args *a, cudaStream_t s);

/* Folds a batch norm into the layer before it, for evaluation:
 *     w_out[k] = w[k] * gamma[k] / sqrt(var[k] + eps)
 *     bias_out[k] = beta[k] + (bias[k] - mean[k]) * gamma[k] / sqrt(var[k] + eps)
 * w: fp32 [kp, row], w_out of `type`. bias (NULL: zeros), gamma and beta: fp32 [kp]; mean and var: fp32 [k]; bias_out:
 * [kp] of bias_type. The results of padding (k to kp - 1) are zero. */
struct ct__k_fold_args {
	const float *w, *bias, *gamma, *beta, *mean, *var;
	void *w_out, *bias_out;
	float eps;
	int k, kp;
	size_t row;
	enum ct_dtype type, bias_type;
};
cudaError_t ct__k_fold(const struct ct__k_fold_args *a, cudaStream_t s);

/* Sets the elements of w [kp, plane, cp] to zero that connect different groups of k output and c input channels. */
struct ct__k_groups_args {
	void *w;
	int k, c, plane, kp, cp;
	enum ct_dtype type;
};
cudaError_t ct__k_groups(const struct ct__k_groups_args *a, cudaStream_t s);

/* Batch norm over rows. stat: float [2, cp], mean and 1/sqrt(var + eps). sums: double [2c + 1], as in nn/host: sums of
 * the values, of their squares, and their count; in backward [2c], the sums of dy and of dy * xh. Synchronized batch
 * norm all-reduces these sums. */
struct ct__k_norm_args {
	const void *x;        /* input of the norm */
	const void *residual; /* forward: added before the ReLU; NULL: none */
	void *y;              /* forward: the result */
	/* [rows, cp * size of an element / 16] Bit j is set if the ReLU passes element j of a vector of 16 bytes.
	 * apply stores it if it is not NULL and there is a residual. backward_sums reads it, and needs it after a ReLU
	 * with a residual; without it, the mask is computed again from x. */
	uint8_t *mask;
	const void *dy, *dy2; /* gradient of y; dy2: a second part of it, or NULL (only backward_sums) */
	void *d;  /* backward_sums: dy + dy2 after the ReLU, which is also the gradient of `residual`; NULL: not stored;
		     may be dy or dy2 */
	void *dx; /* may be dy */
	const float *gamma, *beta;
	float *dgamma, *dbeta, *running_mean, *running_var, *stat;
	double *partial; /* [ct__k_sum_blocks(rows, cp, type), 2, cp] */
	double *sums;
	double *inverse; /* 1 / the number of values on all ranks in the statistics; forward writes it, and
			    backward_data reads it */
	size_t rows;
	/* relu: a ReLU follows; backward masks gradients where y <= 0. backward_data always computes this mask again
	 * from x. With a residual, relu is therefore 0 there, and dy is the d that backward_sums has masked. */
	int c, cp, relu;
	int fixed; /* backward_data: the statistics do not depend on x, and sums and inverse are not read */
	float eps, momentum;
	enum ct_dtype type;
};
cudaError_t ct__k_norm_sums(const struct ct__k_norm_args *a, cudaStream_t s); /* x -> sums */
cudaError_t ct__k_norm_finalize(const struct ct__k_norm_args *a,
				cudaStream_t s); /* sums -> stat, inverse, running statistics */
cudaError_t ct__k_norm_running(const struct ct__k_norm_args *a,
			       cudaStream_t s); /* running statistics -> stat (evaluation) */
cudaError_t ct__k_norm_apply(const struct ct__k_norm_args *a, cudaStream_t s); /* x, stat -> y, mask */
cudaError_t ct__k_norm_backward_sums(const struct ct__k_norm_args *a,
				     cudaStream_t s); /* dy, dy2, x, mask -> sums, dgamma, dbeta, d */
cudaError_t ct__k_norm_backward_data(const struct ct__k_norm_args *a, cudaStream_t s); /* dy, x, sums -> dx */

struct ct__k_pool_args {
	const void *x;
	void *y;
	uint8_t *tap; /* max: [N,P,Q,cp], the tap r * S + s of the largest element */
	const void *dy;
	void *dx;
	int n, h, w, p, q, cp; /* input h x w, output p x q */
	int r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
	int average; /* 0: max; 1: average, not counting the padding */
	enum ct_dtype type;
};
cudaError_t ct__k_pool(const struct ct__k_pool_args *a, cudaStream_t s);
cudaError_t ct__k_pool_backward(const struct ct__k_pool_args *a, cudaStream_t s);

/* Softmax cross-entropy or MSE on logits [n, kp] with k classes. Adds the results to *metrics. dlogits: fp32 [n, kp],
 * the gradient of the sum of the row losses, with zeros in the padding, or NULL if it is not needed. The rows n_valid
 * to n - 1 of dlogits become zero. */
struct ct__k_metrics { /* struct ct_metrics of nn/engine.h */
	double loss;
	int64_t count, top1, top5;
};
struct ct__k_loss_args {
	const void *logits;
	const int32_t *labels, *labels_b;
	const float *mix, *targets;
	const float *class_weights; /* [k] or NULL */
	float *dlogits;
	double *row_loss;   /* [n] */
	uint32_t *row_hits; /* [n] */
	struct ct__k_metrics *metrics;
	float smoothing;
	int n_valid, n, k, kp, mse;
	enum ct_dtype type;
};
cudaError_t ct__k_loss(const struct ct__k_loss_args *a, cudaStream_t s);

/* Dropout (per_row 0) and drop path (per_row 1), forward and backward: y = x * mask with the mask of nn/host/dropout.c
 * for rows first, first + 1, ... of the global batch. The mask is recomputed in each pass and never stored. */
struct ct__k_dropout_args {
	const void *x;
	void *y;
	const uint64_t *step; /* device memory: part of the key of the mask */
	uint64_t seed, first;
	int node, n, h, w, c, cp, per_row;
	float p;
	enum ct_dtype type;
};
cudaError_t ct__k_dropout(const struct ct__k_dropout_args *a, cudaStream_t s);

/* Updates of an optimizer and passes over arenas, in fp32. The formulas and their order of operations are those of
 * nn/optim. */
enum { CT__K_SGD, CT__K_ADAMW, CT__K_LARS, CT__K_LAMB, CT__K_ADAM }; /* enum ct_optim_kind of nn/optim/optim.h */
enum { CT__K_DONE, CT__K_BAD_LOSS, CT__K_BAD_NORM, CT__K_BAD_SCALE, CT__K_SKIPPED }; /* enum ct_update_outcome */
/* Elements of the result, as in nn/optim/optim.h. */
enum {
	CT__K_RESULT_NORM,
	CT__K_RESULT_OUTCOME,
	CT__K_RESULT_SCALE,
	CT__K_RESULT_SCALE_STEPS,
	CT__K_RESULT_N_SKIPPED,
	CT__K_RESULT_WEIGHT_NORM,
	CT__K_RESULTS
};
struct ct__k_step { /* struct ct_step_args of nn/engine.h */
	uint64_t step, update;
	double lr;
};
struct ct__k_loss_scale { /* struct ct_loss_scale of nn/engine_impl.h */
	float scale;
	uint32_t steps;
	uint64_t skipped;
};
struct ct__k_segment {
	int32_t first_chunk, n_chunks;
	int32_t decay, adapt;
	double lr_factor;
};
struct ct__k_chunk {
	uint64_t offset;
	uint32_t n;
	int32_t segment;
};
struct ct__k_factors { /* of a segment in one update */
	float clip, weight_decay, shrink, step;
};
struct ct__k_adam {   /* coefficients of Adam, AdamW and LAMB in one update */
	double bias1; /* 1 - beta1^t */
	float one_minus_beta1, beta2, one_minus_beta2, inverse_bias1, inverse_sqrt_bias2, eps;
};
/* Of one update: the factor for the gradient (clipping, and the inverse of the loss scale), and whether the update must
 * change nothing. */
struct ct__k_control {
	float clip;
	int32_t stop;
	struct ct__k_adam adam;
};
enum { CT__K_PART_ELEMS = 1024 };
struct ct__k_update_args {
	int kind; /* CT__K_SGD ... */
	int nesterov, need_norm;
	int summed; /* 1: `sums` has the squares of the gradients already (ct__k_update_sums) */
	double momentum, weight_decay, beta1, beta2, eps, trust, clip_norm;
	/* Loss scale in device memory, by which the gradients are multiplied; NULL: they are not. Updates stop if it
	 * falls below loss_scale_min. After loss_scale_interval updates without overflow it is doubled. */
	struct ct__k_loss_scale *loss_scale;
	double loss_scale_min;
	uint32_t loss_scale_interval;
	const struct ct__k_segment *segments; /* [n_segments] */
	const struct ct__k_chunk *chunks;     /* [n_chunks] */
	/* [n_parts] The chunks divided into parts of at most CT__K_PART_ELEMS elements. A part is the work of a block
	 * that adds nothing up. */
	const struct ct__k_chunk *parts;
	int n_segments, n_chunks, n_parts;
	double *sums;                  /* [2 * n_chunks] */
	struct ct__k_factors *factors; /* [n_segments] */
	struct ct__k_control *control;
	float *params, *state[2];   /* state: NULL if the optimizer has none */
	void *weights;              /* the update also writes the parameters here in another type; NULL: it does not */
	enum ct_dtype weights_type; /* CT_F16 or CT_BF16 */
	const float *grads;
	const struct ct__k_step *step;
	const float *loss; /* NULL: not checked */
	int32_t *stopped;  /* CT__K_DONE ... */
	float *result;     /* [CT__K_RESULTS] */
};
cudaError_t ct__k_update(const struct ct__k_update_args *a, cudaStream_t s);
/* Only computes the sums of the squares of the gradients: sums[2 * i] of chunk i. */
cudaError_t ct__k_update_sums(const struct ct__k_update_args *a, cudaStream_t s);

enum ct__k_arena_op {
	CT__K_ARENA_ADD,     /* a += b */
	CT__K_ARENA_AVERAGE, /* a = decay * a + rest * b, unless *stopped */
	CT__K_ARENA_SWAP,    /* exchanges a and b */
};
struct ct__k_arena_args {
	enum ct__k_arena_op op;
	float *a, *b;
	const int32_t *stopped;
	size_t n;
	float decay, rest;
};
cudaError_t ct__k_arena(const struct ct__k_arena_args *a, cudaStream_t s);

/* Sets *loss to metrics->loss, and then all metrics to 0. */
struct ct__k_take_loss_args {
	struct ct__k_metrics *metrics;
	float *loss;
};
cudaError_t ct__k_take_loss(const struct ct__k_take_loss_args *a, cudaStream_t s);

/* Sets the n elements of x to 1, -1, 2 or -2. */
struct ct__k_conv_fill_args {
	void *x;
	size_t n;
	uint32_t seed;
	enum ct_dtype type;
};
cudaError_t ct__k_conv_fill(const struct ct__k_conv_fill_args *a, cudaStream_t s);

enum ct__k_conv_direction { CT__K_CONV_FORWARD, CT__K_CONV_DATA, CT__K_CONV_FILTER };
/* An element of the result of a convolution. */
struct ct__k_conv_sum {
	double found, sum, magnitude; /* as it was computed; as summed here; sum of the absolute products */
	int64_t element;
};
/* Sums n_elements elements of the result of a convolution directly, and stores each with the value that the result has:
 * y [n,p,q,k] with FORWARD, x [n,h,w,c] with DATA, or filter [k,r,s,c/groups] with FILTER. With FORWARD, up to two
 * addends, which have one value for each channel or the size of y, and a ReLU may follow. */
struct ct__k_conv_check_args {
	enum ct__k_conv_direction direction;
	const void *x, *filter, *y, *addends[2]; /* addends: NULL: there is none */
	int per_channel[2];
	int n, c, h, w, k, p, q, r, s, groups;
	int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
	int relu, n_elements;
	int64_t n_result; /* elements of the result */
	struct ct__k_conv_sum *out;
	enum ct_dtype type;
};
cudaError_t ct__k_conv_check(const struct ct__k_conv_check_args *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
