#include "tests/golden/golden.h"

#include <math.h>

ct_json *golden_load(const char *name)
{
	char *path = ct_path_join(GOLDEN_DIR, name), *text = NULL;
	size_t len = 0;
	ct_json *j = NULL;
	int64_t version = 0;

	assert_non_null(path);
	if (ct_file_read(path, (size_t)4 << 20, &text, &len) < 0 || ct_json_parse(text, len, path, &j) < 0)
		fail_msg("%s", ct_error_message());
	assert_ok(ct_json_get_i64(j, "v", &version));
	assert_int_equal(version, 1);
	ct_free(text);
	ct_free(path);
	return j;
}

const ct_json *golden_get(const ct_json *o, const char *key)
{
	const ct_json *v = ct_json_get(o, key);

	if (!v)
		fail_msg("the golden file has no \"%s\" here", key);
	return v;
}

double golden_f64(const ct_json *o, const char *key)
{
	double v = 0;

	if (ct_json_get_f64(o, key, &v) < 0)
		fail_msg("%s", ct_error_message());
	return v;
}

double golden_f64_or(const ct_json *o, const char *key, double fallback)
{
	return ct_json_get(o, key) ? golden_f64(o, key) : fallback;
}

int golden_int(const ct_json *o, const char *key)
{
	return (int)golden_f64(o, key);
}

const char *golden_str(const ct_json *o, const char *key)
{
	const char *s = "";

	if (ct_json_get_str(o, key, &s) < 0)
		fail_msg("%s", ct_error_message());
	return s;
}

double golden_at(const ct_json *array, size_t i)
{
	double v = 0;

	if (!ct_json_as_f64(ct_json_at(array, i), &v))
		fail_msg("element %zu is not a number", i);
	return v;
}

double golden_size(const ct_json *sample)
{
	const ct_json *values = golden_get(sample, "values");
	double size = 0;

	for (size_t i = 0; i < ct_json_len(values); i++)
		size = fabs(golden_at(values, i)) > size ? fabs(golden_at(values, i)) : size;
	return size;
}

double golden_compare(const char *what, const ct_json *sample, const float *x, size_t n, double tolerance, double floor)
{
	const ct_json *values = golden_get(sample, "values");
	size_t step = (size_t)golden_int(sample, "step");
	double size = golden_size(sample), worst = 0, sum = 0, abs_sum = 0;

	size = size > floor ? size : floor;
	size = size > 0 ? size : 1;
	if ((size_t)golden_int(sample, "n") != n || ct_json_len(values) != (n + step - 1) / step)
		fail_msg("%s has %zu values, PyTorch's %d", what, n, golden_int(sample, "n"));
	for (size_t i = 0; i < n; i += step) {
		double want = golden_at(values, i / step), error = fabs((double)x[i] - want) / size;

		if (!(error <= tolerance))
			fail_msg("%s[%zu] is %.9g, PyTorch has %.9g: off by %.1e of the largest, %.1e is allowed", what,
				 i, (double)x[i], want, error, tolerance);
		worst = error > worst ? error : worst;
	}
	for (size_t i = 0; i < n; i++) {
		sum += (double)x[i];
		abs_sum += fabs((double)x[i]);
	}
	double limit = tolerance * size * (double)n;
	if (!(fabs(sum - golden_f64(sample, "sum")) <= limit) ||
	    !(fabs(abs_sum - golden_f64(sample, "abs_sum")) <= limit))
		fail_msg("%s: sums %.9g and %.9g (magnitudes), PyTorch has %.9g and %.9g", what, sum, abs_sum,
			 golden_f64(sample, "sum"), golden_f64(sample, "abs_sum"));
	return worst;
}

double golden_compare_digest(const char *what, const ct_json *digest, uint32_t stream, const float *x, size_t n,
			     double tolerance)
{
	const ct_json *values = golden_get(digest, "values");
	size_t step = (size_t)golden_int(digest, "step");
	double norm = golden_f64(digest, "norm"), scale = golden_f64(digest, "scale"),
	       most = golden_f64(digest, "most");
	double squares = 0, along = 0;
	float *direction = CT_NEW_ARRAY(float, n);

	assert_non_null(direction);
	if ((size_t)golden_int(digest, "n") != n || ct_json_len(values) != (n + step - 1) / step)
		fail_msg("%s has %zu values, PyTorch's %d", what, n, golden_int(digest, "n"));
	fill_floats(stream, direction, n);
	for (size_t i = 0; i < n; i++) {
		squares += (double)x[i] * (double)x[i];
		along += (double)x[i] * (double)direction[i];
	}
	ct_free(direction);
	double error = fabs(sqrt(squares) - norm) / scale, other = fabs(along - golden_f64(digest, "along")) / scale;
	error = other > error ? other : error;
	for (size_t i = 0; i < n; i += step) {
		other = fabs((double)x[i] - golden_at(values, i / step)) / most;
		error = other > error ? other : error;
	}
	if (!(error <= tolerance) || !isfinite(squares))
		fail_msg("%s is off by %.1e, %.1e is allowed (norm %.9g, PyTorch's %.9g)", what, error, tolerance,
			 sqrt(squares), norm);
	return error;
}

struct ct_optim_opts golden_optim(const ct_json *o)
{
	static const char *const names[] = {CT_OPTIMIZERS(CT_CHOICE_NAME) NULL};
	bool nesterov = false, decay_norm_bias = true;
	int kind = ct_choice_find(names, golden_str(o, "name"));

	assert_true(kind >= 0);
	if (ct_json_get(o, "nesterov"))
		assert_ok(ct_json_get_bool(o, "nesterov", &nesterov));
	if (ct_json_get(o, "decay_norm_bias"))
		assert_ok(ct_json_get_bool(o, "decay_norm_bias", &decay_norm_bias));
	return (struct ct_optim_opts){
		.kind = (enum ct_optim_kind)kind,
		.momentum = golden_f64_or(o, "momentum", 0),
		.nesterov = nesterov,
		.weight_decay = golden_f64(o, "weight_decay"),
		.decay_norm_bias = decay_norm_bias,
		.beta1 = golden_f64_or(o, "beta1", 0.9),
		.beta2 = golden_f64_or(o, "beta2", 0.999),
		.eps = golden_f64_or(o, "eps", 1e-8),
		.clip_norm = golden_f64_or(o, "clip_norm", 0),
		.trust = golden_f64_or(o, "trust", 0),
	};
}

/* n bytes and a label from one stream. */
static void draw(uint32_t step, int row, int n, uint8_t *x, int32_t *label)
{
	struct ct_rng rng;

	ct_rng_init(&rng, 2024, CT_RNG_TEST, step, (uint32_t)row);
	for (int i = 0; i < n; i++)
		x[i] = (uint8_t)(ct_rng_u32(&rng) >> 25);
	*label = (int32_t)(ct_rng_u32(&rng) % 10);
	for (int i = 0; i < n; i++)
		x[i] = (uint8_t)(x[i] + (((i * (*label + 1)) >> 4) % 3 == 0 ? 120 : 0));
}

static void draw_all(uint32_t step, int rows, int n, uint8_t *x, int32_t *labels)
{
	for (int r = 0; r < rows; r++)
		draw(step, r, n, x + (size_t)r * (size_t)n, &labels[r]);
}

void golden_images(uint32_t step, int rows, uint8_t *x, int32_t *labels)
{
	draw_all(step, rows, 784, x, labels);
}

void golden_photos(uint32_t step, int rows, int size, uint8_t *x, int32_t *labels)
{
	draw_all(step, rows, size * size * 3, x, labels);
}
