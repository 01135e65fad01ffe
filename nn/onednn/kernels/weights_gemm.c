/* The division of the work, compiled for every processor. A chunk is copied by all threads, and then each thread
 * multiplies it for some blocks of channels and taps. Every value of dw is therefore summed by one thread at a time, in
 * an order that depends only on the shape. */
#define CT_LOG_COMPONENT "onednn"
#include "nn/onednn/kernels/weights_gemm.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/log.h"
#include "base/parallel.h"
#include "nn/onednn/kernels/weights_gemm_impl.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define CHUNK_BYTES ((size_t)2 << 20) /* a second-level cache */
#define MAX_IMAGES 8
#define MAX_STRIDE 4
#define MAX_PADDING 4 /* times the pixels of the result, for images that are not tiny */
#define TINY 1024     /* pixels */
#define SEGMENT 16    /* units of GEMM_PIXELS that a thread copies at a time */

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* The remainders that the taps of one axis read, as bits. */
static unsigned remainders(int taps, int dilation, int stride)
{
	unsigned used = 0;

	for (int t = 0; t < taps; t++)
		used |= 1u << t * dilation % stride;
	return used;
}

static void set_images(struct ct__weights_gemm_grid *g, const struct ct_weights_gemm_shape *s, int images)
{
	const struct ct_window *w = &s->win;
	const size_t image = (size_t)g->rows * (size_t)g->cols;
	const size_t last = (size_t)(s->oh - 1) * (size_t)g->cols + (size_t)s->ow;
	const size_t offset = (size_t)((w->r - 1) * w->dilation_h / w->stride_h) * (size_t)g->cols +
			      (size_t)((w->s - 1) * w->dilation_w / w->stride_w);
	const size_t phases = (size_t)(__builtin_popcount(g->used_h) * __builtin_popcount(g->used_w));

	g->images = images;
	g->runs = (s->n + images - 1) / images;
	g->steps = round_up((size_t)(images - 1) * image + last, GEMM_PIXELS) / GEMM_PIXELS;
	g->x_len = round_up(g->steps * GEMM_PIXELS + offset, GEMM_PIXELS);
	/* An odd number of cache lines: the rows of a block do not compete for the same places in a cache. */
	g->x_pitch = (phases * g->x_len / GEMM_PIXELS | 1) * GEMM_PIXELS;
	g->x_run = (size_t)s->c * g->x_pitch;
	g->dy_run = (size_t)s->k * g->steps * GEMM_PIXELS;
}

static size_t run_bytes(const struct ct__weights_gemm_grid *g)
{
	return (g->x_run + g->dy_run) * sizeof(uint16_t);
}

struct ct__weights_gemm_grid ct__weights_gemm_grid(const struct ct_weights_gemm_shape *s)
{
	const struct ct_window *w = &s->win;
	struct ct__weights_gemm_grid g = {.rows = s->oh + (w->r - 1) * w->dilation_h / w->stride_h,
					  .cols = s->ow + (w->s - 1) * w->dilation_w / w->stride_w,
					  .used_h = remainders(w->r, w->dilation_h, w->stride_h),
					  .used_w = remainders(w->s, w->dilation_w, w->stride_w)};
	struct ct__weights_gemm_grid best;

	set_images(&g, s, 1);
	best = g;
	for (int images = 2; images <= MAX_IMAGES && images <= s->n; images++) {
		set_images(&g, s, images);
		if (run_bytes(&g) > CHUNK_BYTES)
			break;
		if (g.steps * (size_t)g.runs < best.steps * (size_t)best.runs)
			best = g;
	}
	const size_t fit = CHUNK_BYTES / run_bytes(&best);
	best.chunk = fit<1 ? 1 : fit>(size_t) best.runs ? best.runs : (int)fit;
	return best;
}

size_t ct__weights_gemm_scratch_bytes(const struct ct_weights_gemm_shape *s)
{
	const struct ct__weights_gemm_grid g = ct__weights_gemm_grid(s);

	return (size_t)g.chunk * run_bytes(&g);
}

#if defined(__x86_64__)
/* The position of a remainder among those that are used. */
static int slot(unsigned used, int remainder)
{
	return __builtin_popcount(used & ((1u << remainder) - 1));
}

static int nth_remainder(unsigned used, int n)
{
	for (; n > 0; n--)
		used &= used - 1;
	return __builtin_ctz(used);
}

struct job {
	const struct ct_weights_gemm *op;
	struct ct__weights_gemm_grid g;
	ct__gemm_block_fn block;
	int first, runs; /* of the chunk */
	uint16_t *x, *dy;
	/* Segments that copy x and dy for a run. */
	int64_t x_segments, dy_segments;
};

/* A pixel of a run. */
struct position {
	int image, row, col;
};

static struct position position_at(const struct ct__weights_gemm_grid *g, size_t i)
{
	const size_t image = (size_t)g->rows * (size_t)g->cols, rest = i % image;

	return (struct position){(int)(i / image), (int)(rest / (size_t)g->cols), (int)(rest % (size_t)g->cols)};
}

static void next_position(const struct ct__weights_gemm_grid *g, struct position *p)
{
	if (++p->col < g->cols)
		return;
	p->col = 0;
	if (++p->row < g->rows)
		return;
	p->row = 0;
	p->image++;
}

static const uint16_t *pixel(const void *images, int n, int row, int col, int h, int w, int channels)
{
	if (row < 0 || row >= h || col < 0 || col >= w)
		return NULL;
	return (const uint16_t *)images +
	       (((size_t)n * (size_t)h + (size_t)row) * (size_t)w + (size_t)col) * (size_t)channels;
}

/* Copies up to SEGMENT units of x, of one remainder. */
static void copy_x(const struct job *j, int run, size_t segment)
{
	const struct ct_weights_gemm_shape *s = &j->op->shape;
	const struct ct__weights_gemm_grid *g = &j->g;
	const size_t units = g->x_len / GEMM_PIXELS, per_phase = (units + SEGMENT - 1) / SEGMENT;
	const int phase = (int)(segment / per_phase), across = __builtin_popcount(g->used_w);
	const int fh = nth_remainder(g->used_h, phase / across), fw = nth_remainder(g->used_w, phase % across);
	const size_t begin = segment % per_phase * SEGMENT, end = begin + SEGMENT < units ? begin + SEGMENT : units;
	uint16_t *to = j->x + (size_t)run * g->x_run + (size_t)phase * g->x_len;
	struct position p = position_at(g, begin * GEMM_PIXELS);
	const uint16_t *at[GEMM_PIXELS];

	for (size_t u = begin; u < end; u++) {
		for (int i = 0; i < GEMM_PIXELS; i++, next_position(g, &p)) {
			const int n = (j->first + run) * g->images + p.image;

			at[i] = p.image < g->images && n < s->n
					? pixel(j->op->x, n, p.row * s->win.stride_h + fh - s->win.pad_h,
						p.col * s->win.stride_w + fw - s->win.pad_w, s->h, s->w, s->c)
					: NULL;
		}
		ct__weights_gemm_pack_x(at, s->c, g->x_pitch, to + u * GEMM_PIXELS);
	}
}

static void copy_dy(const struct job *j, int run, size_t segment)
{
	const struct ct_weights_gemm_shape *s = &j->op->shape;
	const struct ct__weights_gemm_grid *g = &j->g;
	const size_t begin = segment * SEGMENT, end = begin + SEGMENT < g->steps ? begin + SEGMENT : g->steps;
	const size_t step = GEMM_PIXELS * GEMM_CHANNELS;
	uint16_t *to = j->dy + (size_t)run * g->dy_run;
	struct position p = position_at(g, begin * GEMM_PIXELS);
	const uint16_t *at[GEMM_PIXELS];

	for (size_t u = begin; u < end; u++) {
		for (int i = 0; i < GEMM_PIXELS; i++, next_position(g, &p)) {
			const int n = (j->first + run) * g->images + p.image;

			at[i] = p.image < g->images && n < s->n ? pixel(j->op->dy, n, p.row, p.col, s->oh, s->ow, s->k)
								: NULL;
		}
		ct__weights_gemm_pack_dy(at, s->k, g->steps * step, to + u * step);
	}
}

static void copy(void *arg, int64_t begin, int64_t end)
{
	const struct job *j = arg;
	const int64_t of_run = j->x_segments + j->dy_segments;

	for (int64_t i = begin; i < end; i++) {
		const int64_t segment = i % of_run;

		if (segment < j->x_segments)
			copy_x(j, (int)(i / of_run), (size_t)segment);
		else
			copy_dy(j, (int)(i / of_run), (size_t)(segment - j->x_segments));
	}
}

static int pairs(int channels)
{
	return (channels / GEMM_CHANNELS + 1) / 2;
}

/* The product for two blocks of C, two blocks of K, and one tap. Items of the same channels are consecutive, so that a
 * thread finds their copies in its cache. */
static void multiply_one(const struct job *j, int64_t item)
{
	const struct ct_weights_gemm_shape *s = &j->op->shape;
	const struct ct_window *w = &s->win;
	const struct ct__weights_gemm_grid *g = &j->g;
	const int taps = w->r * w->s, tap = (int)(item % taps), panel = (int)(item / taps);
	const int c = panel / pairs(s->k) * 2 * GEMM_CHANNELS, k = panel % pairs(s->k) * 2 * GEMM_CHANNELS;
	const int h = tap / w->s * w->dilation_h, v = tap % w->s * w->dilation_w;
	const int phase =
		slot(g->used_h, h % w->stride_h) * __builtin_popcount(g->used_w) + slot(g->used_w, v % w->stride_w);
	const size_t offset = (size_t)(h / w->stride_h) * (size_t)g->cols + (size_t)(v / w->stride_w);
	const struct ct__gemm_block b = {.a = j->x + (size_t)c * g->x_pitch + (size_t)phase * g->x_len + offset,
					 .a_row = g->x_pitch,
					 .a_run = g->x_run,
					 .b = j->dy + (size_t)k * g->steps * GEMM_PIXELS,
					 .b_block = g->steps * GEMM_PIXELS * GEMM_CHANNELS,
					 .b_run = g->dy_run,
					 .steps = g->steps,
					 .runs = j->runs,
					 .rows = c + GEMM_CHANNELS < s->c ? 2 : 1,
					 .cols = k + GEMM_CHANNELS < s->k ? 2 : 1,
					 .c = j->op->dw + ((size_t)tap * (size_t)s->c + (size_t)c) * (size_t)s->k + k,
					 .c_row = (size_t)s->k,
					 .add = j->first > 0};

	j->block(&b);
}

static void multiply(void *arg, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		multiply_one(arg, i);
}

void ct__weights_gemm_with(const struct ct_weights_gemm *op, ct__gemm_block_fn block)
{
	const struct ct_weights_gemm_shape *s = &op->shape;
	struct job j = {.op = op, .g = ct__weights_gemm_grid(s), .block = block, .x = op->scratch};
	const struct ct__weights_gemm_grid *g = &j.g;
	const int64_t phases = __builtin_popcount(g->used_h) * __builtin_popcount(g->used_w);
	const int64_t items = (int64_t)pairs(s->c) * pairs(s->k) * s->win.r * s->win.s;

	j.dy = j.x + (size_t)g->chunk * g->x_run;
	j.x_segments = phases * (int64_t)((g->x_len / GEMM_PIXELS + SEGMENT - 1) / SEGMENT);
	j.dy_segments = (int64_t)((g->steps + SEGMENT - 1) / SEGMENT);
	for (; j.first < g->runs; j.first += g->chunk) {
		j.runs = g->runs - j.first < g->chunk ? g->runs - j.first : g->chunk;
		ct_parallel_for(op->threads, j.runs * (j.x_segments + j.dy_segments), 1, copy, &j);
		ct_parallel_for(op->threads, items, 1, multiply, &j);
	}
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool use_amx;

/* Linux gives a process the registers of AMX only if it asks for them. */
static void ask_for_tiles(void)
{
	enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */

	if (!ct_cpu_has(CT_CPU_AVX512 | CT_CPU_AVX512BF16 | CT_CPU_AMX_BF16))
		return;
	use_amx = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
	if (!use_amx)
		CT_WARN("the system does not let this process use AMX: %s", strerror(errno));
}

bool ct__weights_gemm_uses_amx(void)
{
	pthread_once(&once, ask_for_tiles);
	return use_amx;
}

void ct__weights_gemm(const struct ct_weights_gemm *op)
{
	ct__weights_gemm_with(op, ct__weights_gemm_uses_amx() ? ct__gemm_block_amx : ct__gemm_block_avx512);
}
#else
void ct__weights_gemm(const struct ct_weights_gemm *op)
{
	(void)op; /* never called: no shape is possible */
}
#endif

/* Returns whether the copies are not much larger than the images. A large dilation makes them so. */
static bool is_compact(const struct ct_weights_gemm_shape *s)
{
	const struct ct_window *w = &s->win;
	const int64_t rows = s->oh + (int64_t)(w->r - 1) * w->dilation_h / w->stride_h;
	const int64_t cols = s->ow + (int64_t)(w->s - 1) * w->dilation_w / w->stride_w;

	const int64_t most = (int64_t)s->oh * s->ow * MAX_PADDING;

	return rows * cols <= (most > TINY ? most : TINY);
}

bool ct__weights_gemm_possible(const struct ct_weights_gemm_shape *s)
{
	const struct ct_window *w = &s->win;

	return ct_cpu_has(CT_CPU_AVX512 | CT_CPU_AVX512BF16) && s->c % GEMM_CHANNELS == 0 &&
	       s->k % GEMM_CHANNELS == 0 && w->stride_h <= MAX_STRIDE && w->stride_w <= MAX_STRIDE && s->n > 0 &&
	       s->oh > 0 && s->ow > 0 && is_compact(s);
}
