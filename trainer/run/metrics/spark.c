/* The values are kept as sums of `per` values each in 2 * CT_SPARK_MAX elements. When all are full, neighbors are
 * merged and `per` doubles, so at least CT_SPARK_MAX elements are in use after the first merge, and memory stays
 * constant for any number of steps. Only the last element may hold fewer than `per` values. Drawing divides the
 * elements evenly among the columns and scales their means to the range of all columns. */
#include "trainer/run/metrics/spark.h"

#include <math.h>
#include <stdio.h>

#include "base/status.h"

#define N_LEVELS 8
#define CAPACITY (2 * (uint64_t)CT_SPARK_MAX)

static void merge(struct ct_spark *s)
{
	for (size_t i = 0; i < CT_SPARK_MAX; i++)
		s->sum[i] = s->sum[2 * i] + s->sum[2 * i + 1];
	for (size_t i = CT_SPARK_MAX; i < CAPACITY; i++)
		s->sum[i] = 0;
	s->per *= 2;
}

void ct_spark_add(struct ct_spark *s, double value)
{
	if (!isfinite(value))
		return;
	if (s->per == 0)
		s->per = 1;
	if (s->n == s->per * CAPACITY)
		merge(s);
	s->sum[s->n / s->per] += value;
	s->n++;
}

/* Returns the mean of the values of elements `from` to `to` (exclusive). */
static double mean(const struct ct_spark *s, uint64_t from, uint64_t to)
{
	const uint64_t last = to * s->per < s->n ? to * s->per : s->n;
	double sum = 0;

	for (uint64_t i = from; i < to; i++)
		sum += s->sum[i];
	return sum / (double)(last - from * s->per);
}

void ct_spark_draw(const struct ct_spark *s, int columns, bool utf8, char *out, size_t size)
{
	static const char *const blocks[N_LEVELS] = {"\u2581", "\u2582", "\u2583", "\u2584",
						     "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const plain[N_LEVELS] = {"_", ".", "-", "~", "=", "+", "*", "#"};
	const uint64_t used = s->per > 0 ? (s->n + s->per - 1) / s->per : 0;
	const uint64_t width = columns < 0 ? 0 : columns > CT_SPARK_MAX ? CT_SPARK_MAX : (uint64_t)columns;
	const uint64_t n = used < width ? used : width;
	double values[CT_SPARK_MAX], lo = INFINITY, hi = -INFINITY;
	size_t len = 0;

	out[0] = '\0';
	if (n < 2)
		return;
	for (uint64_t i = 0; i < n; i++) {
		values[i] = mean(s, i * used / n, (i + 1) * used / n);
		lo = fmin(lo, values[i]);
		hi = fmax(hi, values[i]);
	}
	for (uint64_t i = 0; i < n; i++) {
		const double height = hi > lo ? (values[i] - lo) / (hi - lo) : 0;
		const int level = (int)fmin(height * N_LEVELS, N_LEVELS - 1);
		const char *c = utf8 ? blocks[level] : plain[level];

		if (len + 4 > size)
			return;
		len += (size_t)snprintf(out + len, size - len, "%s", c);
	}
}
