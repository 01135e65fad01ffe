#include "tests/data/resize_cases.h"

#include <stdlib.h>
#include <string.h>

#include "data/transform/resize.h"
#include "tests/data/jpeg_make.h"

/* Exactly the pixels that the request asks for, in memory of that size; free. */
static uint8_t *window_of_picture(struct ct_box b)
{
	uint8_t *p = malloc((size_t)b.w * (size_t)b.h * 4);

	assert_non_null(p);
	for (int i = 0; i < b.w * b.h * 4; i++)
		p[i] = i % 4 == 3 ? (uint8_t)i : picture(b.x + i / 4 % b.w, b.y + i / 4 / b.w, i % 4);
	return p;
}

static void compare(ct_resizer *r, const struct ct_resize *q, const char *hex, struct resize_result *sum)
{
	struct ct_box b = ct_resize_window(q);
	uint8_t *src = window_of_picture(b), *dst = malloc((size_t)q->out_w * (size_t)q->out_h * 3);

	assert_ok(ct_resize_run(r, q, &(struct ct_pixels){src, (size_t)b.w * 4, b, 1}, dst));
	for (int i = 0; i < q->out_w * q->out_h * 3; i++) {
		char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
		int diff = abs((int)strtol(two, NULL, 16) - dst[i]);

		sum->values++;
		sum->different += diff != 0;
		sum->most = diff > sum->most ? diff : sum->most;
	}
	free(src);
	free(dst);
}

struct resize_result resize_cases_run(FILE *lines)
{
	struct resize_result sum = {0};
	size_t cap = 0;
	char *line = NULL;
	ct_resizer *r;

	assert_ok(ct_resizer_create(&r));
	while (getline(&line, &cap, lines) > 0) {
		struct ct_resize q = {0};
		int w, h, flip, hex = 0;

		assert_int_equal(sscanf(line, "%d %d %lf %lf %lf %lf %d %d %d %d %d %d %d %n", &w, &h, &q.x, &q.y, &q.w,
					&q.h, &q.limits.x, &q.limits.y, &q.limits.w, &q.limits.h, &q.out_w, &q.out_h,
					&flip, &hex),
				 13);
		q.flip = flip != 0;
		assert_int_equal(strlen(line + hex), (size_t)(q.out_w * q.out_h * 6 + 1));
		compare(r, &q, line + hex, &sum);
		sum.cases++;
	}
	free(line);
	ct_resizer_destroy(r);
	return sum;
}
