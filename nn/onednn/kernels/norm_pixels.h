/* Loops over the pixels of [N,H,W,C] tensors for norm_nhwc.c and norm_pool.c. A tile is processed in panels of
 * channels, four pixels at a time. The lanes of the last block of channels that are no channels are neither read nor
 * written. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_PIXELS_H
#define CT_NN_ONEDNN_KERNELS_NORM_PIXELS_H

#include "nn/onednn/kernels/norm_nhwc.h"
#include "nn/onednn/kernels/norm_sums.h"

enum {
	PANEL = 32, /* blocks of channels; their coefficients fit in the first-level cache */
	PIXELS = 4
};

struct tile {
	size_t first, n; /* pixels */
	float factor;    /* of the row, or 1 */
};

/* Coefficients of the blocks of a panel: z = (x - mean) * slope + shift. Backward: dx = slope * d + base - (x - mean) *
 * tilt. */
struct panel {
	int first, n; /* blocks */
	ct_vec mean[PANEL], slope[PANEL], shift[PANEL], base[PANEL], tilt[PANEL];
};

/* The sums of the blocks of a panel over a tile. */
struct panel_sums {
	ct_vec a[PANEL], b[PANEL];
};

enum relu { RELU_NONE, RELU_AGAIN, RELU_BITS };

static inline struct tile tile_at(const struct ct_norm *p, const struct ct_norm_tiles *t, size_t i)
{
	const size_t row = i / t->per_row, from = i % t->per_row * t->size;
	const size_t end = from + t->size < t->row ? from + t->size : t->row;

	return (struct tile){
		.first = row * t->row + from, .n = end - from, .factor = p->factor ? p->factor[row] : 1.0f};
}

static inline int n_blocks(int channels)
{
	return (channels + CT_LANES - 1) / CT_LANES;
}

static inline int lanes_in(const struct ct_norm *p, int block)
{
	const int left = p->channels - block * CT_LANES;

	return left < CT_LANES ? left : CT_LANES;
}

/* Load and store `lanes` elements from element i on. lanes is constant where it is CT_LANES. */
CT_INLINE ct_vec load(const void *x, size_t i, int lanes, bool bf16)
{
	ct_vec v;
	ct_hvec h;

	if (!bf16) {
		if (lanes < CT_LANES)
			return ct_vec_load_part((const float *)x + i, lanes);
		memcpy(&v, (const float *)x + i, sizeof(v));
		return v;
	}
	if (lanes < CT_LANES)
		h = ct_hvec_load_part((const uint16_t *)x + i, lanes);
	else
		memcpy(&h, (const uint16_t *)x + i, sizeof(h));
	return ct_vec_load(&h, 0, true);
}

CT_INLINE void store(void *y, size_t i, ct_vec v, int lanes, bool bf16)
{
	ct_hvec h;

	if (!bf16) {
		if (lanes < CT_LANES)
			ct_vec_store_part((float *)y + i, v, lanes);
		else
			memcpy((float *)y + i, &v, sizeof(v));
		return;
	}
	ct_vec_store(&h, 0, v, true);
	if (lanes < CT_LANES)
		ct_hvec_store_part((uint16_t *)y + i, h, lanes);
	else
		memcpy((uint16_t *)y + i, &h, sizeof(h));
}

CT_INLINE size_t element(const struct ct_norm *p, size_t pixel, int block)
{
	return pixel * (size_t)p->channels + (size_t)block * CT_LANES;
}

static inline ct_vec inverse_deviation(const struct ct_norm *p, int block)
{
	return ct_norm_inverse_deviation(p->variance, p->channels, block, p->eps);
}

/* Sets the coefficients of the forward pass for the blocks from `first` on, of which there are `left`. */
static inline void make_panel(const struct ct_norm *p, int first, int left, struct panel *k)
{
	k->first = first;
	k->n = left < PANEL ? left : PANEL;
	for (int b = 0; b < k->n; b++) {
		k->mean[b] = ct_vec_of_block(p->mean, p->channels, first + b);
		k->slope[b] = ct_vec_of_block(p->gamma, p->channels, first + b) * inverse_deviation(p, first + b);
		k->shift[b] = ct_vec_of_block(p->beta, p->channels, first + b);
	}
}

/* Sets the coefficients of the backward pass. sums: those of ct__norm_gradient_sums, of `count` values per channel. */
static inline void add_gradient_coefficients(const struct ct_norm *p, const double *sums, double count, struct panel *k)
{
	for (int b = 0; b < k->n; b++) {
		const int block = k->first + b;
		ct_vec sum = {0}, dot = {0};

		for (int l = 0; l < lanes_in(p, block); l++) {
			sum[l] = (float)(sums[block * CT_LANES + l] / count);
			dot[l] = (float)(sums[p->channels + block * CT_LANES + l] / count);
		}
		k->base[b] = -k->slope[b] * sum;
		k->tilt[b] = k->slope[b] * inverse_deviation(p, block) * dot;
	}
}

/* What a loop over the pixels of a tile and the blocks of a panel works on. The flags are constants after inlining. */
struct work {
	const struct ct_norm *p;
	const struct tile *t;
	const struct panel *k;
	bool bf16, residual; /* residual: there is one, or its gradient is written, or there are two gradients */
	enum relu relu;
	const ct_vec *middle;
	struct panel_sums *sums;
};

/* Calls fn(w, pixel, b, n, lanes) for all pixels and blocks. n is the number of pixels from `pixel` on and b the block
 * of the panel. n and, except in the last block, lanes are constants. */
#define FOR_PIXELS(w, fn)                                                  \
	do {                                                               \
		const struct panel *k_ = (w)->k;                           \
		const int last_ = lanes_in((w)->p, k_->first + k_->n - 1); \
		const int full_ = k_->n - (last_ < CT_LANES);              \
		size_t i_ = (w)->t->first, end_ = i_ + (w)->t->n;          \
		for (; i_ + PIXELS <= end_; i_ += PIXELS) {                \
			for (int b_ = 0; b_ < full_; b_++)                 \
				fn((w), i_, b_, PIXELS, CT_LANES);         \
			if (full_ < k_->n)                                 \
				fn((w), i_, full_, PIXELS, last_);         \
		}                                                          \
		for (; i_ < end_; i_++) {                                  \
			for (int b_ = 0; b_ < full_; b_++)                 \
				fn((w), i_, b_, 1, CT_LANES);              \
			if (full_ < k_->n)                                 \
				fn((w), i_, full_, 1, last_);              \
		}                                                          \
	} while (0)

#endif
