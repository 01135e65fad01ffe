/* For each result pixel, the triangle around its center, stretched by the scale when an image becomes smaller, covers a
 * range of source pixels, whose normalized weights are stored in fixed point. Every pixel has the same number of taps;
 * weights outside its triangle are zero, but their addresses stay within the interval, so that kernels may read all of
 * them. Integer weights make sums independent of their order. Rounding errors of single weights are too small to change
 * white, except with very many taps, where each error is carried to the next weight. */
#include "data/transform/resize_axis_impl.h"

#include <math.h>

#include "base/mem.h"

/* Up to this many taps, weights are rounded one by one as in Pillow: their sum is 1 up to 1/2048, and white pixels
 * still round to 255. With more taps, rounding errors are carried to the next weight. */
#define MANY 4096

struct filter {
	double scale;   /* source pixels per result pixel */
	double support; /* half the width of the triangle, in source pixels */
};

static struct filter filter_of(double len, int n)
{
	struct filter f = {.scale = len / n};

	f.support = f.scale < 1 ? 1 : f.scale;
	return f;
}

/* Computes the source pixels under the triangle around `center`; there is at least one. */
static void under(double center, double support, int lo, int hi, int *from, int *end)
{
	double first = center - support + 0.5, last = center + support + 0.5;

	*from = first <= lo ? lo : (int)first;
	*end = last >= hi ? hi : (int)last;
	if (*from > hi - 1)
		*from = hi - 1;
	if (*end <= *from)
		*end = *from + 1;
}

void ct__resize_axis_range(double at, double len, int lo, int hi, int n, int *first, int *end)
{
	struct filter f = filter_of(len, n);
	int ignored;

	under(at + 0.5 * f.scale, f.support, lo, hi, first, &ignored);
	under(at + (n - 0.5) * f.scale, f.support, lo, hi, &ignored, end);
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

void ct__resize_axis_release(struct ct_resize_axis *a)
{
	ct_free(a->from);
	ct_free(a->k);
	*a = (struct ct_resize_axis){0};
}

static double triangle(double x)
{
	return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Computes the weights of the pixels starting at `from`. The weights under the triangle sum to 1. */
static void weigh(double center, double support, int from, int first, int end, int taps, int32_t *k)
{
	double sum = 0, narrow = 1 / support, carry = 0;

	/* Each weight is computed twice, because storing the unrounded weights would need memory. */
	for (int i = first; i < end; i++)
		sum += triangle((i - center + 0.5) * narrow);
	for (int i = from; i < from + taps; i++) {
		double w = i >= first && i < end && sum > 0 ? triangle((i - center + 0.5) * narrow) / sum : 0;

		w = w * (1 << CT_RESIZE_BITS) + carry;
		k[i - from] = (int32_t)(0.5 + w);
		if (taps > MANY)
			carry = w - k[i - from];
	}
	if (sum <= 0) /* a single pixel at the edge of its triangle */
		k[first - from] = 1 << CT_RESIZE_BITS;
}

enum ct_status ct__resize_axis_set(struct ct_resize_axis *a, double at, double len, int lo, int hi, int n, bool mirror,
				   int unit)
{
	struct filter f = filter_of(len, n);
	int first, end;

	CT_ASSERT(len > 0 && lo >= 0 && lo < hi && n > 0);
	a->n = n;
	a->taps = 1;
	for (int i = 0; i < n; i++) {
		under(at + (i + 0.5) * f.scale, f.support, lo, hi, &first, &end);
		a->taps = end - first > a->taps ? end - first : a->taps;
	}
	a->taps = (a->taps + unit - 1) / unit * unit;
	if (a->taps > hi - lo)
		a->taps = hi - lo;
	CT_TRY(reserve(&a->from, &a->cap_n, (size_t)n));
	CT_TRY(reserve(&a->k, &a->cap_k, (size_t)n * (size_t)a->taps));
	for (int i = 0; i < n; i++) {
		double center = at + (i + 0.5) * f.scale;
		int to = mirror ? n - 1 - i : i, from;

		under(center, f.support, lo, hi, &first, &end);
		from = first < hi - a->taps ? first : hi - a->taps;
		weigh(center, f.support, from, first, end, a->taps, a->k + (size_t)to * (size_t)a->taps);
		a->from[to] = from - lo;
	}
	return CT_OK;
}
