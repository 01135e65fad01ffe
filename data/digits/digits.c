/* Draws digits with + - * / and sqrt only, so that the pixels are the same on every machine. */
#include "data/digits/digits.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "data/digits/strokes_impl.h"

#define SIDE 28
#define BOX 20.0f /* MNIST's digits fill a box of 20 x 20 in 28 x 28 */
#define STEPS 6   /* line segments between two control points */
#define MAX_NODES (CT_DIGIT_MAX_POINTS * (STEPS + 1))
#define FIELD 4 /* the elastic field has FIELD x FIELD random vectors */

struct vec {
	float x, y;
};

/* A digit as a sequence of nodes. Nothing is drawn from one node to the next if that one starts a stroke. */
struct path {
	struct vec p[MAX_NODES];
	float radius[MAX_NODES];
	bool starts[MAX_NODES];
	int n;
};

static float between(struct ct_rng *r, float low, float high)
{
	return low + (high - low) * ct_rng_uniform(r);
}

/* Bell-shaped distribution in -1..1: the mean of three uniform numbers. */
static float bell(struct ct_rng *r)
{
	float a = ct_rng_uniform(r), b = ct_rng_uniform(r), c = ct_rng_uniform(r);

	return (a + b + c) * (2.0f / 3.0f) - 1.0f;
}

static float smooth(float t)
{
	return t * t * (3.0f - 2.0f * t);
}

/* Returns the displacement at p (in 0..1): random vectors on a grid, interpolated smoothly. */
static struct vec displacement(const struct vec *field, struct vec p)
{
	float gx = p.x * (FIELD - 1), gy = p.y * (FIELD - 1), tx, ty;
	int ix = gx < 0           ? 0
		 : gx > FIELD - 2 ? FIELD - 2
				  : (int)gx,
	    iy = gy < 0           ? 0
		 : gy > FIELD - 2 ? FIELD - 2
				  : (int)gy;
	const struct vec *a = field + iy * FIELD + ix, *b = a + FIELD;

	tx = smooth(fminf(fmaxf(gx - (float)ix, 0), 1));
	ty = smooth(fminf(fmaxf(gy - (float)iy, 0), 1));
	return (struct vec){(1 - ty) * ((1 - tx) * a[0].x + tx * a[1].x) + ty * ((1 - tx) * b[0].x + tx * b[1].x),
			    (1 - ty) * ((1 - tx) * a[0].y + tx * a[1].y) + ty * ((1 - tx) * b[0].y + tx * b[1].y)};
}

/* Catmull-Rom spline between b and c. */
static float spline(float a, float b, float c, float d, float t)
{
	return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

/* Adds random offsets to the control points of the shape and returns the path in 0..1. */
static void trace(struct ct_rng *r, const struct ct_digit_shape *shape, struct path *path)
{
	struct vec v[CT_DIGIT_MAX_POINTS];
	int first = 0;

	for (int i = 0; i < shape->n; i++) {
		v[i].x = (float)shape->p[i].x * 0.01f + 0.045f * bell(r);
		v[i].y = (float)shape->p[i].y * 0.01f + 0.045f * bell(r);
	}
	path->n = 0;
	for (int i = 0; i < shape->n; i++) {
		bool last = shape->p[i].last;
		struct vec a = v[i > first ? i - 1 : i], b = v[i], c = v[last ? i : i + 1],
			   d = v[last || shape->p[i + 1].last ? (last ? i : i + 1) : i + 2];

		for (int k = 0; k < (last ? 1 : STEPS); k++) {
			float t = (float)k / STEPS;

			path->starts[path->n] = i == first && k == 0;
			path->p[path->n++] = (struct vec){spline(a.x, b.x, c.x, d.x, t), spline(a.y, b.y, c.y, d.y, t)};
		}
		if (last)
			first = i + 1;
	}
}

/* Applies elastic field, shear, rotation and aspect ratio, then fits the path into the box with a small offset. */
static void distort(struct ct_rng *r, struct path *path)
{
	float turn = 0.36f * bell(r), slant = -0.18f + 0.65f * bell(r), width = between(r, 0.55f, 1.15f), scale;
	float s = turn - turn * turn * turn / 6, c = 1 - turn * turn / 2; /* approximations of sine and cosine */
	float elastic = between(r, 0.06f, 0.24f), size = BOX * between(r, 0.72f, 1.05f);
	struct vec field[FIELD * FIELD], low = {9, 9}, high = {-9, -9}, shift;

	for (int i = 0; i < FIELD * FIELD; i++)
		field[i] = (struct vec){elastic * bell(r), elastic * bell(r)};
	for (int i = 0; i < path->n; i++) {
		struct vec p = path->p[i], e = displacement(field, p);
		float x = (p.x + e.x - 0.5f) * width, y = p.y + e.y - 0.5f;

		x += slant * y * -1.0f;
		p = (struct vec){c * x - s * y, s * x + c * y};
		low = (struct vec){fminf(low.x, p.x), fminf(low.y, p.y)};
		high = (struct vec){fmaxf(high.x, p.x), fmaxf(high.y, p.y)};
		path->p[i] = p;
	}
	scale = size / fmaxf(fmaxf(high.x - low.x, high.y - low.y), 0.5f);
	shift = (struct vec){0.5f * SIDE + 2.2f * bell(r), 0.5f * SIDE + 2.2f * bell(r)};
	for (int i = 0; i < path->n; i++) {
		path->p[i].x = (path->p[i].x - 0.5f * (low.x + high.x)) * scale + shift.x;
		path->p[i].y = (path->p[i].y - 0.5f * (low.y + high.y)) * scale + shift.y;
	}
}

/* Sets half the width of the pen, in pixels, which varies from node to node. */
static void press(struct ct_rng *r, struct path *path)
{
	float base = between(r, 0.75f, 1.65f), now = 1;

	for (int i = 0; i < path->n; i++) {
		now += 0.12f * bell(r);
		now = fminf(fmaxf(now, 0.75f), 1.25f);
		path->radius[i] = base * now;
	}
}

/* Draws a line segment. Each pixel of the image [SIDE,SIDE] keeps its darkest value. Coverage falls linearly over one
 * pixel. */
static void ink_piece(struct vec a, struct vec b, float ra, float rb, float *image)
{
	float reach = fmaxf(ra, rb) + 0.5f, dx = b.x - a.x, dy = b.y - a.y, len2 = dx * dx + dy * dy + 1e-6f;
	int x0 = (int)fmaxf(fminf(a.x, b.x) - reach, 0), x1 = (int)fminf(fmaxf(a.x, b.x) + reach + 1, SIDE);
	int y0 = (int)fmaxf(fminf(a.y, b.y) - reach, 0), y1 = (int)fminf(fmaxf(a.y, b.y) + reach + 1, SIDE);

	for (int y = y0; y < y1; y++) {
		for (int x = x0; x < x1; x++) {
			float px = (float)x + 0.5f - a.x, py = (float)y + 0.5f - a.y;
			float t = fminf(fmaxf((px * dx + py * dy) / len2, 0), 1);
			float ex = px - t * dx, ey = py - t * dy;
			float cover = ra + t * (rb - ra) + 0.5f - sqrtf(ex * ex + ey * ey);
			float *at = &image[y * SIDE + x];

			*at = fmaxf(*at, fminf(cover, 1));
		}
	}
}

/* Applies a 3x3 blur with weight `blur`, and then adds noise to pixels with ink. */
static void finish(struct ct_rng *r, const float *image, uint8_t *out)
{
	float blur = between(r, 0.0f, 0.5f), peak = between(r, 225.0f, 275.0f) * (1 + 0.6f * blur),
	      grain = between(r, 0.0f, 0.12f);

	for (int y = 0; y < SIDE; y++) {
		for (int x = 0; x < SIDE; x++) {
			const float *p = &image[y * SIDE + x];
			float v = *p, around = 0;

			if (x > 0 && x < SIDE - 1 && y > 0 && y < SIDE - 1) {
				around = 2 * (p[-1] + p[1] + p[-SIDE] + p[SIDE]) + p[-SIDE - 1] + p[-SIDE + 1] +
					 p[SIDE - 1] + p[SIDE + 1];
				v = (1 - blur) * v + blur * (4 * v + around) * (1.0f / 16.0f);
			}
			if (v > 0)
				v *= 1 + grain * bell(r);
			*out++ = (uint8_t)fminf(fmaxf(v * peak, 0), 255);
		}
	}
}

void ct_digits_draw(uint64_t seed, uint32_t sample, int digit, uint8_t *out)
{
	const struct ct_digit_shape *shapes;
	float image[SIDE * SIDE] = {0};
	struct path path;
	struct ct_rng r;
	uint32_t n;

	shapes = ct__digit_shapes(digit, &n);
	ct_rng_init(&r, seed, CT_RNG_DIGITS, 0, sample);
	trace(&r, &shapes[ct_rng_below(&r, n)], &path);
	distort(&r, &path);
	press(&r, &path);
	for (int i = 1; i < path.n; i++) {
		if (!path.starts[i])
			ink_piece(path.p[i - 1], path.p[i], path.radius[i - 1], path.radius[i], image);
	}
	finish(&r, image, out);
}
