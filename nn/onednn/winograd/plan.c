/* The division of the work, compiled for every processor: it decides whether the kernels may be called, and those of
 * which instruction set. A unit of tiles is small enough for its transformed values to stay in a cache, and large
 * enough to read the transformed weights seldom. If there are fewer units than threads, the output channels are
 * divided, too. Scratch memory is computed from the same grid that the kernels use, so both must change together. Sums
 * of dw are divided into groups whose number depends only on the shape, so results do not depend on the number of
 * threads. */
#include "nn/onednn/winograd/winograd.h"

#include "nn/onednn/winograd/winograd_impl.h"

#define MAX_GROUPS 8

static int points(const struct ct_winograd_shape *s)
{
	return s->taps + RESULTS - 1;
}

static int results_h(const struct ct_winograd_shape *s)
{
	return s->h + 2 * s->pad_h - (s->taps - 1);
}

static int results_w(const struct ct_winograd_shape *s)
{
	return s->w + 2 * s->pad_w - (s->taps - 1);
}

static int tiles(int results)
{
	return (results + RESULTS - 1) / RESULTS;
}

/* Returns the number of tiles per unit. With more tiles, the transformed weights are read less often. With fewer tiles,
 * the data between two steps stays in a faster cache. */
static int unit_tiles(const struct ct_winograd_shape *s)
{
	const int64_t weights = (int64_t)s->c * s->k;

	if (s->taps == 5)
		return 16;
	return weights <= 64 * 64 ? 24 : weights <= 128 * 128 ? 48 : weights <= 256 * 256 ? 96 : 128;
}

/* Returns the number of partial sums of dw. This number, and therefore the order of additions, depends only on the
 * shape. If there are several partial sums, they take at most 40 MB. */
static int max_groups(const struct ct_winograd_shape *s)
{
	const int64_t fit = (int64_t)512 * 512 / ((int64_t)s->c * s->k);

	return fit < 1 ? 1 : fit > MAX_GROUPS ? MAX_GROUPS : (int)fit;
}

/* Returns whether at least half of the results of the tiles are inside the image. */
static bool fills_tiles(int h, int w)
{
	return h > 0 && w > 0 && 2 * (int64_t)h * w >= (int64_t)RESULTS * RESULTS * tiles(h) * tiles(w);
}

/* Transforming the weights of 3x3 kernels takes as long as about 30 tiles. Direct convolutions in bfloat16 are twice as
 * fast as in fp32. */
static bool enough_tiles(const struct ct_winograd_shape *s)
{
	return s->taps == 5 || (int64_t)s->n * tiles(results_h(s)) * tiles(results_w(s)) >= (s->bf16 ? 96 : 32);
}

bool ct__winograd_possible(const struct ct_winograd_shape *s)
{
	const bool channels = s->c % ct__lanes() == 0 && s->k % ct__lanes() == 0;
	const bool padding = s->pad_h >= 0 && s->pad_h < s->taps && s->pad_w >= 0 && s->pad_w < s->taps;

	return (s->taps == 3 || s->taps == 5) && ct__norm_usable(false) && channels && padding && results_h(s) > 0 &&
	       results_w(s) > 0;
}

bool ct__winograd_usable(const struct ct_winograd_shape *s)
{
	const int64_t most = s->taps == 5 ? 64 * 64 : 1024 * 1024;

	return ct__winograd_possible(s) && (int64_t)s->c * s->k <= most && fills_tiles(results_h(s), results_w(s)) &&
	       fills_tiles(s->h, s->w) && enough_tiles(s);
}

struct ct__winograd_grid ct__winograd_grid(const struct ct_winograd_shape *s, enum ct_conv_pass pass)
{
	const bool data = pass == CT_CONV_BACKWARD_DATA;
	struct ct__winograd_grid g = {
		.n = s->n, .tiles_h = tiles(data ? s->h : results_h(s)), .tiles_w = tiles(data ? s->w : results_w(s))};
	const int image = g.tiles_h * g.tiles_w, unit = unit_tiles(s);

	if (image <= unit) {
		g.images = unit / image < s->n ? unit / image : s->n;
		g.rows = g.tiles_h;
		g.units_per_image = 1;
		g.units = (s->n + g.images - 1) / g.images;
	} else {
		const int rows = g.tiles_w < unit ? (unit + (s->taps == 3 ? g.tiles_w / 2 : 0)) / g.tiles_w : 1;

		g.images = 1;
		g.units_per_image = (g.tiles_h + rows - 1) / rows;
		g.rows = (g.tiles_h + g.units_per_image - 1) / g.units_per_image;
		g.units = s->n * g.units_per_image;
	}
	g.tiles = g.images * g.rows * g.tiles_w;
	return g;
}

struct ct__winograd_unit ct__winograd_unit(const struct ct__winograd_grid *g, int i)
{
	struct ct__winograd_unit u = {.n0 = i / g->units_per_image * g->images, .r0 = i % g->units_per_image * g->rows};

	u.n1 = u.n0 + g->images < g->n ? u.n0 + g->images : g->n;
	u.r1 = u.r0 + g->rows < g->tiles_h ? u.r0 + g->rows : g->tiles_h;
	u.tiles = (u.n1 - u.n0) * (u.r1 - u.r0) * g->tiles_w;
	return u;
}

struct ct__winograd_scratch ct__winograd_scratch(const struct ct_winograd_shape *s, enum ct_conv_pass pass)
{
	const struct ct__winograd_grid g = ct__winograd_grid(s, pass);
	const bool data = pass == CT_CONV_BACKWARD_DATA, sums = pass == CT_CONV_BACKWARD_WEIGHTS;
	const size_t lanes = (size_t)ct__lanes(), in = (size_t)(data ? s->k : s->c) / lanes,
		     out = (size_t)(data ? s->c : s->k) / lanes;
	const size_t taps = (size_t)s->taps, n_points = (size_t)points(s), pitch = (size_t)g.tiles_w * n_points + 1;
	const size_t images = (size_t)g.images, rows = (size_t)g.rows * RESULTS, n_tiles = (size_t)g.tiles;
	struct ct__winograd_scratch z = {.columns = images * in * (rows + taps - 1) * pitch,
					 .gradient_columns = sums ? images * out * rows * pitch : 0,
					 .input = n_points * in * n_tiles,
					 .product = n_points * out * n_tiles,
					 .half_results = sums ? 0 : out * n_tiles * RESULTS * n_points,
					 .weights = n_points * n_points * in * lanes * out,
					 .groups = !sums                     ? 0
						   : g.units < max_groups(s) ? g.units
									     : max_groups(s)};

	z.per_thread = z.columns + z.gradient_columns + z.input + z.product + z.half_results;
	return z;
}

size_t ct__winograd_scratch_bytes(const struct ct_winograd_shape *s, enum ct_conv_pass pass, int threads)
{
	const struct ct__winograd_scratch z = ct__winograd_scratch(s, pass);
	const size_t lanes = (size_t)ct__lanes();
	const size_t shared = z.groups ? (size_t)z.groups * (z.weights + (size_t)s->k / lanes) : z.weights;

	return (shared + (size_t)threads * z.per_thread) * lanes * sizeof(float);
}

int ct__winograd_parts(int out_blocks, int units, int threads)
{
	const int panels = (out_blocks + 1) / 2;

	if (units % threads == 0 || units >= 4 * threads)
		return 1;
	return panels < threads ? panels : threads;
}

struct ct_winograd_range ct__winograd_part(int parts, int i, int out_blocks)
{
	const int panels = (out_blocks + 1) / 2, end = panels * (i + 1) / parts * 2;

	return (struct ct_winograd_range){panels * i / parts * 2, end < out_blocks ? end : out_blocks};
}

static const struct ct_winograd_kernels *kernels(const struct ct_winograd *op)
{
	return op->shape.taps == 3 ? CT_SELECT(ct__winograd_kernels_3x3) : CT_SELECT(ct__winograd_kernels_5x5);
}

void ct__winograd_forward(const struct ct_winograd *op)
{
	kernels(op)->forward(op);
}

void ct__winograd_backward_data(const struct ct_winograd *op)
{
	kernels(op)->backward_data(op);
}

void ct__winograd_backward_weights(const struct ct_winograd *op)
{
	kernels(op)->backward_weights(op);
}
