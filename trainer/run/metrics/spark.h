/* A sparkline: a row of characters that shows how a number has developed since the start, in constant memory. */
#ifndef CT_TRAINER_RUN_METRICS_SPARK_H
#define CT_TRAINER_RUN_METRICS_SPARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_SPARK_MAX = 24 }; /* characters */

/* A zero-initialized struct is empty. Each element is the sum of `per` values; when all are full, neighbors are merged.
 */
struct ct_spark {
	double sum[2 * CT_SPARK_MAX];
	uint64_t per; /* 0 counts as 1 */
	uint64_t n;   /* number of values */
};

/* Values that are not finite are ignored. */
void ct_spark_add(struct ct_spark *s, double value);
/* Writes at most `columns` characters, the lowest value as the lowest one. With utf8, they are block elements of three
 * bytes each, otherwise ASCII characters. The result is "" if there are fewer than two values. */
void ct_spark_draw(const struct ct_spark *s, int columns, bool utf8, char *out, size_t size);

#endif
