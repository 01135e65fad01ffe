/* Reads the golden files that make_golden.py has written with PyTorch, and makes the numbers that both programs derive
 * from Philox. */
#ifndef CT_TESTS_GOLDEN_GOLDEN_H
#define CT_TESTS_GOLDEN_GOLDEN_H

#include "tests/nn/nn_check.h"

#include "base/json.h"
#include "nn/optim/optim.h"

/* Reads the file of this name in the directory of the test's source. The caller owns the result. */
ct_json *golden_load(const char *name);

/* Return members of an object. The test fails if a member is missing, unless a fallback is given. */
const ct_json *golden_get(const ct_json *o, const char *key);
double golden_f64(const ct_json *o, const char *key);
double golden_f64_or(const ct_json *o, const char *key, double fallback);
int golden_int(const ct_json *o, const char *key);
const char *golden_str(const ct_json *o, const char *key);
double golden_at(const ct_json *array, size_t i);

/* Compares values with a sample {n, step, sum, abs_sum, values}, which contains every step-th of the n values, and
 * sums over all of them. A value may differ by `tolerance` times the largest magnitude of the sample, which is taken
 * as at least `floor`. A sum may differ by n times this. Returns the largest relative error. */
double golden_compare(const char *what, const ct_json *sample, const float *x, size_t n, double tolerance,
		      double floor);
/* A digest (make_golden_resnet.py) is {n, norm, scale, most, along, step, values}: along is the projection on
 * fill_floats(stream), values are every step-th. Norm and projection may be off by `tolerance` times the scale (the norm, or
 * that of a tensor beside it), values by that times the largest magnitude. Returns the largest of these relative errors. */
double golden_compare_digest(const char *what, const ct_json *digest, uint32_t stream, const float *x, size_t n,
			     double tolerance);
/* Returns the largest magnitude in a sample. */
double golden_size(const ct_json *sample);

struct ct_optim_opts golden_optim(const ct_json *o);

/* Makes the synthetic images [rows,28,28] and labels of a step: noise, and stripes that depend on the label (images()
 * in make_golden.py). */
void golden_images(uint32_t step, int rows, uint8_t *x, int32_t *labels);
/* The same for color images [rows,size,size,3] (images() in make_golden_resnet.py). */
void golden_photos(uint32_t step, int rows, int size, uint8_t *x, int32_t *labels);

#endif
