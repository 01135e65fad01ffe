/* Reads the golden files that make_golden.py has written with PyTorch, and generates the same pseudo-random numbers
 * (Philox) as golden_data.py. */
#ifndef CT_TESTS_GOLDEN_GOLDEN_H
#define CT_TESTS_GOLDEN_GOLDEN_H

#include "tests/nn/nn_check.h"

#include "base/json.h"
#include "nn/optim/optim.h"

/* Reads the file of this name in the directory of the test's source. The caller owns the result. */
ct_json *golden_load(const char *name);

/* Return the value of a member of an object. The test fails if a member is missing, unless a fallback is given. */
const ct_json *golden_get(const ct_json *o, const char *key);
double golden_f64(const ct_json *o, const char *key);
double golden_f64_or(const ct_json *o, const char *key, double fallback);
int golden_int(const ct_json *o, const char *key);
const char *golden_str(const ct_json *o, const char *key);
double golden_at(const ct_json *array, size_t i);

/* Compares values with a sample {n, step, sum, abs_sum, values}, which contains every step-th of the n values, and the
 * sums over all n values. A value may differ by `tolerance` times the largest magnitude in the sample or `floor`,
 * whichever is larger. A sum may differ by n times this limit. Returns the largest relative error. */
double golden_compare(const char *what, const ct_json *sample, const float *x, size_t n, double tolerance,
		      double floor);
/* Compares values with a digest {n, norm, scale, most, along, step, values} (make_golden_resnet.py): `along` is the
 * projection on fill_floats(stream), and `values` contains every step-th value. The norm and the projection may differ
 * by `tolerance` times `scale` (the norm of this tensor or of a related one, whichever is larger), and the values by
 * `tolerance` times `most` (the largest magnitude, likewise). Returns the largest of these relative errors. */
double golden_compare_digest(const char *what, const ct_json *digest, uint32_t stream, const float *x, size_t n,
			     double tolerance);
/* Returns the largest magnitude in a sample. */
double golden_size(const ct_json *sample);

struct ct_optim_opts golden_optim(const ct_json *o);

/* Generates the synthetic images [rows,28,28] and labels of a step: noise, and stripes that depend on the label
 * (images() in golden_data.py). */
void golden_images(uint32_t step, int rows, uint8_t *x, int32_t *labels);
/* Does the same for color images [rows,size,size,3] (images() in make_golden_resnet.py). */
void golden_photos(uint32_t step, int rows, int size, uint8_t *x, int32_t *labels);

#endif
