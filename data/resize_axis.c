#include "data/resize_axis.h"

#include "base/mem.h"

/* Up to so many taps weights are rounded one by one, as Pillow does: their sum is one but for 1/2048, and that of white
 * pixels still rounds to 255. Beyond, what rounding adds or takes is passed on to the next weight. */
#define MANY 4096

#define LANES 4 /* pixels of the result at a time */

typedef double dvec __attribute__((vector_size(8 * LANES)));
typedef int64_t lvec __attribute__((vector_size(8 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

/* Compiled for AVX2 and for any processor. There is no vector among arguments: how they are passed depends on that. */
#define INLINE static inline __attribute__((always_inline))

/* How an interval of the source becomes n pixels. */
struct filter {
	double at;
	double scale;   /* source pixels a pixel of the result */
	double support; /* half the width of the triangle, in source pixels */
	int lo, hi, n;
};

static struct filter filter_of(double at, double len, int lo, int hi, int n)
{
	struct filter f = {.at = at, .scale = len / n, .lo = lo, .hi = hi, .n = n};

	f.support = f.scale < 1 ? 1 : f.scale;
	return f;
}

struct group {
	dvec center;
	ivec first, end; /* source pixels under the triangle: at least one */
};

/* The pixels of the result from i on; the last one fills what is left of the group. */
INLINE void look(struct group *g, const struct filter *f, int i)
{
	const ivec lane = {0, 1, 2, 3};
	ivec p = i + lane, more = p > f->n - 1;

	p = (p & ~more) | ((f->n - 1) & more);
	g->center = f->at + (__builtin_convertvector(p, dvec) + 0.5) * f->scale;
	g->first = __builtin_convertvector(g->center - f->support + 0.5, ivec);
	g->end = __builtin_convertvector(g->center + f->support + 0.5, ivec);
	/* Into lo..hi - 1 and first + 1..hi. */
	more = g->first > f->lo;
	g->first = (g->first & more) | (f->lo & ~more);
	more = g->first > f->hi - 1;
	g->first = (g->first & ~more) | ((f->hi - 1) & more);
	more = g->end > f->hi;
	g->end = (g->end & ~more) | (f->hi & more);
	more = g->end > g->first;
	g->end = (g->end & more) | ((g->first + 1) & ~more);
}

void ct_resize_axis_range(double at, double len, int lo, int hi, int n, int *first, int *end)
{
	struct filter f = filter_of(at, len, lo, hi, n);
	struct group g;

	look(&g, &f, 0);
	*first = g.first[0];
	look(&g, &f, n - 1);
	*end = g.end[0];
}

static enum ct_status reserve(int32_t **p, size_t *cap, size_t n)
{
	int32_t *grown;

	if (n <= *cap)
		return CT_OK;
	n += n / 2;
	CT_TRY_ALLOC(grown = ct_realloc(*p, n, sizeof(*grown)));
	*p = grown;
	*cap = n;
	return CT_OK;
}

void ct_resize_axis_release(struct ct_resize_axis *a)
{
	ct_free(a->from);
	ct_free(a->k);
	*a = (struct ct_resize_axis){0};
}

/* The most pixels under a triangle. */
INLINE int most_taps(const struct filter *f)
{
	ivec most = {0};
	int taps = 0;

	for (int i = 0; i < f->n; i += LANES) {
		struct group g;
		ivec n, more;

		look(&g, f, i);
		n = g.end - g.first;
		more = n > most;
		most = (n & more) | (most & ~more);
	}
	for (int j = 0; j < LANES; j++)
		taps = most[j] > taps ? most[j] : taps;
	return taps;
}

/* The source pixel `at` of each pixel of a group: its weight before division by their sum. */
INLINE void heights(dvec *x, const struct group *g, const dvec *at, double narrow)
{
	const dvec first = __builtin_convertvector(g->first, dvec), end = __builtin_convertvector(g->end, dvec);
	const dvec far = (*at - g->center + 0.5) * narrow, left = 1 - (dvec)((lvec)far & INT64_MAX);

	*x = (dvec)((lvec)left & (left > 0) & (*at >= first) & (*at < end));
}

/* Weights of each pixel of a group at k[j], which sum up to one, from the source pixel from[j] on. */
INLINE void weigh(const struct group *g, const ivec *from, double narrow, int taps, int32_t *const k[LANES])
{
	const dvec one = {1, 1, 1, 1};
	dvec sum = {0}, carry = {0}, x, at = __builtin_convertvector(*from, dvec);
	lvec alone;

	/* The same twice: keeping the real weights would want memory for them. */
	for (int t = 0; t < taps; t++, at += 1.0) {
		heights(&x, g, &at, narrow);
		sum += x;
	}
	alone = sum <= 0;
	sum = (dvec)((lvec)sum | ((lvec)one & alone));
	at = __builtin_convertvector(*from, dvec);
	for (int t = 0; t < taps; t++, at += 1.0) {
		ivec rounded;

		heights(&x, g, &at, narrow);
		x = x / sum * (1 << CT_RESIZE_BITS) + carry;
		rounded = __builtin_convertvector(x + 0.5, ivec);
		if (taps > MANY)
			carry = x - __builtin_convertvector(rounded, dvec);
		for (int j = 0; j < LANES; j++)
			k[j][t] = rounded[j];
	}
	for (int j = 0; j < LANES; j++) {
		if (alone[j]) /* a pixel at the very edge of its triangle */
			k[j][g->first[j] - (*from)[j]] = 1 << CT_RESIZE_BITS;
	}
}

INLINE void weigh_all(const struct filter *f, const struct ct_resize_axis *a, bool mirror)
{
	int step = mirror ? -1 : 1, to = mirror ? f->n - 1 : 0;

	for (int i = 0; i < f->n; i += LANES, to += LANES * step) {
		int32_t *k[LANES];
		struct group g;
		ivec from, more;

		look(&g, f, i);
		more = g.first > f->hi - a->taps;
		from = (g.first & ~more) | ((f->hi - a->taps) & more);
		for (int j = 0; j < LANES; j++) {
			int p = i + j < f->n ? to + j * step : to + (f->n - 1 - i) * step;

			a->from[p] = from[j] - f->lo;
			k[j] = a->k + (size_t)p * (size_t)a->taps;
		}
		weigh(&g, &from, 1 / f->support, a->taps, k);
	}
}

static int most_taps_any(const struct filter *f)
{
	return most_taps(f);
}

static void weigh_all_any(const struct filter *f, const struct ct_resize_axis *a, bool mirror)
{
	weigh_all(f, a, mirror);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))

static AVX2 int most_taps_avx2(const struct filter *f)
{
	return most_taps(f);
}

static AVX2 void weigh_all_avx2(const struct filter *f, const struct ct_resize_axis *a, bool mirror)
{
	weigh_all(f, a, mirror);
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}
#else
#define most_taps_avx2 most_taps_any
#define weigh_all_avx2 weigh_all_any

static bool has_avx2(void)
{
	return false;
}
#endif

enum ct_status ct_resize_axis_set(struct ct_resize_axis *a, double at, double len, int lo, int hi, int n, bool mirror,
				  int unit)
{
	struct filter f = filter_of(at, len, lo, hi, n);
	bool avx2 = has_avx2();

	CT_ASSERT(len > 0 && lo >= 0 && lo < hi && n > 0);
	a->n = n;
	a->taps = avx2 ? most_taps_avx2(&f) : most_taps_any(&f);
	a->taps = (a->taps + unit - 1) / unit * unit;
	if (a->taps > hi - lo)
		a->taps = hi - lo;
	CT_TRY(reserve(&a->from, &a->cap_n, (size_t)n));
	CT_TRY(reserve(&a->k, &a->cap_k, (size_t)n * (size_t)a->taps));
	if (avx2)
		weigh_all_avx2(&f, a, mirror);
	else
		weigh_all_any(&f, a, mirror);
	return CT_OK;
}
