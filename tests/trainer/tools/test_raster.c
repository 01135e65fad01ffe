/* Lines that are drawn as pixels. */
#include "tests/base/check.h"
#include "trainer/tools/report/canvas_impl.h"

#define LENGTH 100
#define ROW 10

/* Draws a dashed line with one point every `step` pixels, and stores which pixels of its row have a color. */
static int draw(int step, bool drawn[LENGTH])
{
	const struct ct__pen pen = {.ink = INK_TEXT, .width = 2, .alpha = 1, .dashed = true};
	struct ct__point p[LENGTH + 1];
	struct ct__raster r;
	size_t n = 0;
	int count = 0;

	for (int x = 0; x <= LENGTH; x += step)
		p[n++] = (struct ct__point){x, ROW + 0.5};
	assert_ok(ct__raster_create(&r, LENGTH, 2 * ROW, 1));
	r.canvas.lines(&r.canvas, p, n, pen);
	for (int x = 0; x < LENGTH; x++) {
		drawn[x] = r.rgb[((size_t)ROW * LENGTH + (size_t)x) * 3] < 255;
		count += drawn[x];
	}
	ct__raster_release(&r);
	return count;
}

/* The dashes do not depend on where the points are. */
static void test_dashes(void **state)
{
	static const int steps[] = {1, 2, 4, 5, 10, 20, 50};
	bool line[LENGTH], drawn[LENGTH];

	(void)state;
	assert_in_range(draw(LENGTH, line), LENGTH / 2, LENGTH * 3 / 4);
	for (size_t i = 0; i < CT_ARRAY_LEN(steps); i++) {
		draw(steps[i], drawn);
		assert_memory_equal(drawn, line, sizeof(line));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
