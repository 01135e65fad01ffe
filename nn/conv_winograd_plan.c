/* Compiled for every processor. */
#include "nn/conv_winograd.h"

#include "nn/conv_winograd_impl.h"

#define MAX_WEIGHTS (64 * 64) /* C*K: a megabyte of transformed weights */
#define UNIT_TILES 16
#define MAX_GROUPS 8

static int results_h(const struct ct_winograd_shape *s)
{
	return s->h + 2 * s->pad_h - (TAPS - 1);
}

static int results_w(const struct ct_winograd_shape *s)
{
	return s->w + 2 * s->pad_w - (TAPS - 1);
}

static int tiles(int results)
{
	return (results + RESULTS - 1) / RESULTS;
}

static bool has_instructions(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512dq");
#else
	return false;
#endif
}

/* At least half of what is computed is wanted. */
static bool fills_tiles(int h, int w)
{
	return h > 0 && w > 0 && 2 * (int64_t)h * w >= (int64_t)RESULTS * RESULTS * tiles(h) * tiles(w);
}

bool ct_winograd_usable(const struct ct_winograd_shape *s)
{
	const bool channels = s->c % LANES == 0 && s->k % LANES == 0 && (int64_t)s->c * s->k <= MAX_WEIGHTS;
	const bool padding = s->pad_h >= 0 && s->pad_h < TAPS && s->pad_w >= 0 && s->pad_w < TAPS;

	return has_instructions() && channels && padding && fills_tiles(results_h(s), results_w(s)) &&
	       fills_tiles(s->h, s->w);
}

struct ct_winograd_grid ct_winograd_grid(const struct ct_winograd_shape *s, enum ct_winograd_pass pass)
{
	const bool data = pass == CT_WINOGRAD_BACKWARD_DATA;
	struct ct_winograd_grid g = {
		.n = s->n, .tiles_h = tiles(data ? s->h : results_h(s)), .tiles_w = tiles(data ? s->w : results_w(s))};
	const int image = g.tiles_h * g.tiles_w;

	if (image <= UNIT_TILES) {
		g.images = UNIT_TILES / image < s->n ? UNIT_TILES / image : s->n;
		g.rows = g.tiles_h;
		g.units_per_image = 1;
		g.units = (s->n + g.images - 1) / g.images;
	} else {
		const int rows = g.tiles_w < UNIT_TILES ? UNIT_TILES / g.tiles_w : 1;
		g.images = 1;
		g.units_per_image = (g.tiles_h + rows - 1) / rows;
		g.rows = (g.tiles_h + g.units_per_image - 1) / g.units_per_image;
		g.units = s->n * g.units_per_image;
	}
	g.tiles = g.images * g.rows * g.tiles_w;
	return g;
}

struct ct_winograd_unit ct_winograd_unit(const struct ct_winograd_grid *g, int i)
{
	struct ct_winograd_unit u = {.n0 = i / g->units_per_image * g->images, .r0 = i % g->units_per_image * g->rows};

	u.n1 = u.n0 + g->images < g->n ? u.n0 + g->images : g->n;
	u.r1 = u.r0 + g->rows < g->tiles_h ? u.r0 + g->rows : g->tiles_h;
	u.tiles = (u.n1 - u.n0) * (u.r1 - u.r0) * g->tiles_w;
	return u;
}

struct ct_winograd_scratch ct_winograd_scratch(const struct ct_winograd_shape *s, enum ct_winograd_pass pass)
{
	const struct ct_winograd_grid g = ct_winograd_grid(s, pass);
	const bool data = pass == CT_WINOGRAD_BACKWARD_DATA, sums = pass == CT_WINOGRAD_BACKWARD_WEIGHTS;
	const size_t in = (size_t)(data ? s->k : s->c) / LANES, out = (size_t)(data ? s->c : s->k) / LANES;
	const size_t images = (size_t)g.images, rows = (size_t)g.rows * RESULTS, n_tiles = (size_t)g.tiles;
	struct ct_winograd_scratch z = {.columns = images * in * (rows + POINTS - RESULTS) * row_pitch(&g),
					.gradient_columns = sums ? images * out * rows * row_pitch(&g) : 0,
					.input = POINTS * in * n_tiles,
					.product = POINTS * out * n_tiles,
					.half_results = sums ? 0 : out * n_tiles * RESULTS * POINTS,
					.weights = (size_t)POINTS * POINTS * in * LANES * out,
					.groups = !sums                  ? 0
						  : g.units < MAX_GROUPS ? g.units
									 : MAX_GROUPS};

	z.per_thread = z.columns + z.gradient_columns + z.input + z.product + z.half_results;
	return z;
}

size_t ct_winograd_scratch_bytes(const struct ct_winograd_shape *s, enum ct_winograd_pass pass, int threads)
{
	const struct ct_winograd_scratch z = ct_winograd_scratch(s, pass);
	const size_t shared = z.groups ? (size_t)z.groups * (z.weights + (size_t)s->k / LANES) : z.weights;

	return (shared + (size_t)threads * z.per_thread) * LANES * sizeof(float);
}
