/* An update of an optimizer: the device decides whether to apply it, and how.
 *
 *     norm        sums of squares of the gradient    for clipping and for a scaled loss
 *     decide      stop? factor of the gradient       one block; also changes the loss scale
 *     trust sums  LARS, LAMB (and LAMB's moments)    if segments have trust ratios
 *     factors     one thread per segment
 *     apply
 *
 * The blocks of the sums work on a chunk of the arenas, because the last bits of the results depend on the order of the
 * additions, which is that of nn/optim. `apply` changes each element for itself. Its blocks work on a part of a chunk
 * with 4 elements per thread, so that the 100,000 parameters of a small model are divided among 100 multiprocessors and
 * not two. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 1024, APPLY_BLOCK = 256, TILE = 256 };
static constexpr double LARS_EPS = 1e-8;

/* The sums of a block's threads in a fixed order; thread 0 gets the result. */
static inline __device__ double block_sum(double x, double *shared)
{
	const int t = (int)threadIdx.x;

	shared[t] = x;
	__syncthreads();
	for (int n = BLOCK / 2; n > 0; n /= 2) {
		if (t < n)
			shared[t] += shared[t + n];
		__syncthreads();
	}
	return shared[0];
}

static inline __device__ double add_chunks(const struct ct__k_update_args &a, int first, int n, int which)
{
	double sum = 0;

	for (int i = first; i < first + n; i++)
		sum += a.sums[2 * i + which];
	return sum;
}

static __global__ void norm_sums(const struct ct__k_update_args a)
{
	__shared__ double shared[BLOCK];
	const struct ct__k_chunk k = a.chunks[blockIdx.x];
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < k.n; i += BLOCK) {
		const double g = (double)a.grads[k.offset + i];

		sum += g * g;
	}
	sum = block_sum(sum, shared);
	if (threadIdx.x == 0)
		a.sums[2 * blockIdx.x] = sum;
}

/* Micikevicius et al., "Mixed precision training", 2018, with the constants of torch.amp.GradScaler. */
static inline __device__ void adjust_scale(const struct ct__k_update_args &a, bool overflow)
{
	struct ct__k_loss_scale s = *a.loss_scale;

	if (overflow) {
		s.scale *= 0.5f;
		s.steps = 0;
		s.skipped++;
		if ((double)s.scale < a.loss_scale_min)
			*a.stopped = CT__K_BAD_SCALE;
	} else if (++s.steps >= a.loss_scale_interval) {
		s.steps = 0;
		if (is_finite((double)(s.scale * 2.0f)))
			s.scale *= 2.0f;
	}
	*a.loss_scale = s;
}

static inline __device__ void report(const struct ct__k_update_args &a, float norm, int outcome)
{
	a.result[CT__K_RESULT_NORM] = norm;
	a.result[CT__K_RESULT_OUTCOME] = (float)outcome;
	a.result[CT__K_RESULT_SCALE] = a.loss_scale ? a.loss_scale->scale : 0.0f;
	a.result[CT__K_RESULT_SCALE_STEPS] = a.loss_scale ? (float)a.loss_scale->steps : 0.0f;
	a.result[CT__K_RESULT_WEIGHT_NORM] = -1.0f; /* not computed */
	a.result[CT__K_RESULT_N_SKIPPED] = a.loss_scale ? (float)a.loss_scale->skipped : 0.0f;
}

/* Adds the sums of all chunks in order, as nn/optim does. One thread adds; all threads of the block load. */
static inline __device__ double add_all_chunks(const struct ct__k_update_args &a, double *tile)
{
	double sum = 0;

	for (int first = 0; first < a.n_chunks; first += TILE) {
		const int i = first + (int)threadIdx.x, n = a.n_chunks - first < TILE ? a.n_chunks - first : TILE;

		if (i < a.n_chunks)
			tile[threadIdx.x] = a.sums[2 * i];
		__syncthreads();
		for (int k = 0; threadIdx.x == 0 && k < n; k++)
			sum += tile[k];
		__syncthreads();
	}
	return sum;
}

static inline __device__ bool is_adam(const struct ct__k_update_args &a)
{
	return a.kind == CT__K_ADAM || a.kind == CT__K_ADAMW || a.kind == CT__K_LAMB;
}

static inline __device__ struct ct__k_adam adam_of(const struct ct__k_update_args &a)
{
	/* Skipped updates do not count, as in PyTorch. */
	const double t = (double)(a.step->update - (a.loss_scale ? a.loss_scale->skipped : 0)),
		     bias1 = 1 - pow(a.beta1, t), bias2 = 1 - pow(a.beta2, t);
	struct ct__k_adam c;

	c.bias1 = bias1;
	c.one_minus_beta1 = (float)(1 - a.beta1);
	c.beta2 = (float)a.beta2;
	c.one_minus_beta2 = (float)(1 - a.beta2);
	c.inverse_bias1 = (float)(1 / bias1);
	c.inverse_sqrt_bias2 = (float)(1 / sqrt(bias2));
	c.eps = (float)a.eps;
	return c;
}

/* The sum of squares in double is finite exactly if all gradients are. */
static __global__ void decide(const struct ct__k_update_args a)
{
	__shared__ double tile[TILE];
	const double squares = a.need_norm ? add_all_chunks(a, tile) : 0;

	if (threadIdx.x > 0)
		return;
	const float scale = a.loss_scale ? a.loss_scale->scale : 1.0f;
	float clip = 1.0f, norm_out = -1.0f;
	bool overflow = false;

	if (!*a.stopped && a.loss && !is_finite((double)*a.loss))
		*a.stopped = CT__K_BAD_LOSS;
	if (!*a.stopped && a.need_norm) {
		const double norm = sqrt(squares) / (double)scale;

		norm_out = (float)norm;
		overflow = a.loss_scale && !is_finite(norm);
		if (!is_finite(norm) && !overflow)
			*a.stopped = CT__K_BAD_NORM;
		else if (a.clip_norm > 0 && a.clip_norm / (norm + 1e-6) < 1)
			clip = (float)(a.clip_norm / (norm + 1e-6));
	}
	if (!*a.stopped && a.loss_scale)
		adjust_scale(a, overflow);
	const int outcome = *a.stopped ? *a.stopped : overflow ? CT__K_SKIPPED : CT__K_DONE;
	report(a, norm_out, outcome);
	a.control->clip = clip / scale;
	a.control->stop = outcome != CT__K_DONE;
	if (is_adam(a))
		a.control->adam = adam_of(a);
}

static __global__ void lars_sums(const struct ct__k_update_args a)
{
	__shared__ double shared[BLOCK];
	const struct ct__k_chunk k = a.chunks[blockIdx.x];
	double w2 = 0, g2 = 0;

	if (a.control->stop || !a.segments[k.segment].adapt)
		return;
	for (uint32_t i = threadIdx.x; i < k.n; i += BLOCK) {
		const double w = (double)a.params[k.offset + i], g = (double)a.grads[k.offset + i];

		w2 += w * w;
		g2 += g * g;
	}
	w2 = block_sum(w2, shared);
	__syncthreads();
	g2 = block_sum(g2, shared);
	if (threadIdx.x == 0) {
		a.sums[2 * blockIdx.x] = w2;
		a.sums[2 * blockIdx.x + 1] = g2;
	}
}

static inline __device__ float lamb_update(float p, float m, float v, const struct ct__k_adam &c, float weight_decay)
{
	return m * c.inverse_bias1 / (sqrtf(v) * c.inverse_sqrt_bias2 + c.eps) + weight_decay * p;
}

static __global__ void lamb_moments(const struct ct__k_update_args a)
{
	__shared__ double shared[BLOCK];
	const struct ct__k_chunk k = a.chunks[blockIdx.x];
	double p2 = 0, u2 = 0;

	if (a.control->stop || !a.segments[k.segment].adapt)
		return;
	const struct ct__k_adam c = a.control->adam;
	for (uint32_t i = threadIdx.x; i < k.n; i += BLOCK) {
		const size_t at = k.offset + i;
		const float d = a.control->clip * a.grads[at],
			    m = a.state[0][at] + c.one_minus_beta1 * (d - a.state[0][at]),
			    v = c.beta2 * a.state[1][at] + c.one_minus_beta2 * (d * d),
			    u = lamb_update(a.params[at], m, v, c, (float)a.weight_decay);

		a.state[0][at] = m;
		a.state[1][at] = v;
		p2 += (double)a.params[at] * (double)a.params[at];
		u2 += (double)u * (double)u;
	}
	p2 = block_sum(p2, shared);
	__syncthreads();
	u2 = block_sum(u2, shared);
	if (threadIdx.x == 0) {
		a.sums[2 * blockIdx.x] = p2;
		a.sums[2 * blockIdx.x + 1] = u2;
	}
}

static inline __device__ void adapt_lars(const struct ct__k_update_args &a, const struct ct__k_segment &s, float clip,
					 struct ct__k_factors *f)
{
	const double w = sqrt(add_chunks(a, s.first_chunk, s.n_chunks, 0)),
		     g = (double)clip * sqrt(add_chunks(a, s.first_chunk, s.n_chunks, 1)),
		     q = a.trust * w / (g + a.weight_decay * w + LARS_EPS);

	f->weight_decay = 0;
	if (w > 0 && g > 0) {
		f->clip = (float)(q * (double)clip);
		f->weight_decay = (float)(q * a.weight_decay);
	}
}

static __global__ void factors(const struct ct__k_update_args a)
{
	const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	if (i >= a.n_segments || a.control->stop)
		return;
	const struct ct__k_segment s = a.segments[i];
	const double lr = a.step->lr * s.lr_factor;
	const bool l2 = a.kind != CT__K_ADAMW && a.kind != CT__K_LAMB;
	struct ct__k_factors f = {a.control->clip, s.decay && l2 ? (float)a.weight_decay : 0.0f,
				  s.decay && !l2 ? (float)(1 - lr * a.weight_decay) : 1.0f,
				  (float)(is_adam(a) ? lr / a.control->adam.bias1 : lr)};
	if (s.adapt && a.kind == CT__K_LARS)
		adapt_lars(a, s, f.clip, &f);
	if (s.adapt && a.kind == CT__K_LAMB) {
		const double w2 = add_chunks(a, s.first_chunk, s.n_chunks, 0),
			     u2 = add_chunks(a, s.first_chunk, s.n_chunks, 1);

		f.step = (float)(lr * (w2 > 0 && u2 > 0 ? sqrt(w2 / u2) : 1));
	}
	a.factors[i] = f;
}

static inline __device__ void store_weight(const struct ct__k_update_args &a, size_t at)
{
	if (!a.weights)
		return;
	if (a.weights_type == CT_F16)
		static_cast<__half *>(a.weights)[at] = from_float<__half>(a.params[at]);
	else
		static_cast<__nv_bfloat16 *>(a.weights)[at] = from_float<__nv_bfloat16>(a.params[at]);
}

static inline __device__ void apply_sgd(const struct ct__k_update_args &a, const struct ct__k_factors &f, size_t at)
{
	const float lr = f.step, momentum = (float)a.momentum, p = a.params[at];
	const float d = f.clip * a.grads[at] + f.weight_decay * p;
	float move = d;

	if (a.state[0]) {
		const float buffer = momentum * a.state[0][at] + d;

		a.state[0][at] = buffer;
		move = a.nesterov ? d + momentum * buffer : buffer;
	}
	a.params[at] = p - lr * move;
}

static inline __device__ void apply_adam(const struct ct__k_update_args &a, const struct ct__k_factors &f,
					 const struct ct__k_adam &c, size_t at)
{
	const float g = f.clip * a.grads[at], d = f.weight_decay > 0 ? g + f.weight_decay * a.params[at] : g,
		    m = a.state[0][at] + c.one_minus_beta1 * (d - a.state[0][at]),
		    v = c.beta2 * a.state[1][at] + c.one_minus_beta2 * (d * d);

	a.state[0][at] = m;
	a.state[1][at] = v;
	a.params[at] = a.params[at] * f.shrink - f.step * m / (sqrtf(v) * c.inverse_sqrt_bias2 + c.eps);
}

static __global__ void apply(const struct ct__k_update_args a)
{
	const struct ct__k_chunk k = a.parts[blockIdx.x];
	const bool adam = is_adam(a);

	if (a.control->stop) { /* the copy of the weights may be older than the parameters */
		for (uint32_t i = threadIdx.x; i < k.n; i += APPLY_BLOCK)
			store_weight(a, k.offset + i);
		return;
	}
	const struct ct__k_factors f = a.factors[k.segment];
	const struct ct__k_adam c = adam ? a.control->adam : ct__k_adam{};
	const bool trusted = a.kind == CT__K_LAMB && a.segments[k.segment].adapt;
	for (uint32_t i = threadIdx.x; i < k.n; i += APPLY_BLOCK) {
		const size_t at = k.offset + i;

		if (trusted)
			a.params[at] -= f.step * lamb_update(a.params[at], a.state[0][at], a.state[1][at], c,
							     (float)a.weight_decay);
		else if (adam)
			apply_adam(a, f, c, at);
		else
			apply_sgd(a, f, at);
		store_weight(a, at);
	}
}

static cudaError_t for_chunks(void (*kernel)(struct ct__k_update_args), const struct ct__k_update_args *a,
			      cudaStream_t s)
{
	return ct__launch(kernel, (unsigned)a->n_chunks, BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_update_sums(const struct ct__k_update_args *a, cudaStream_t s)
{
	return for_chunks(norm_sums, a, s);
}

extern "C" cudaError_t ct__k_update(const struct ct__k_update_args *a, cudaStream_t s)
{
	cudaError_t e = a->need_norm && !a->summed ? for_chunks(norm_sums, a, s) : cudaSuccess;

	if (e == cudaSuccess)
		e = ct__launch(decide, 1, TILE, 0, s, *a);
	if (e == cudaSuccess && a->kind == CT__K_LARS)
		e = for_chunks(lars_sums, a, s);
	if (e == cudaSuccess && a->kind == CT__K_LAMB)
		e = for_chunks(lamb_moments, a, s);
	if (e == cudaSuccess)
		e = ct__launch(factors, blocks_for((size_t)a->n_segments, 64), 64, 0, s, *a);
	return e ? e : ct__launch(apply, (unsigned)a->n_parts, APPLY_BLOCK, 0, s, *a);
}
