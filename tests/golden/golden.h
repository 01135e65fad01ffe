/* Reading the golden files that make_golden.py wrote with real PyTorch, and the numbers both sides make from Philox. */
#ifndef CT_TESTS_GOLDEN_GOLDEN_H
#define CT_TESTS_GOLDEN_GOLDEN_H

#include "tests/nn/nn_check.h"

#include "base/json.h"
#include "nn/optim/optim.h"

/* The file of that name beside the test's source. Returns owned. */
ct_json *golden_load(const char *name);

/* Members of an object; a missing one fails the test, except where a fallback is given. */
const ct_json *golden_get(const ct_json *o, const char *key);
double golden_f64(const ct_json *o, const char *key);
double golden_f64_or(const ct_json *o, const char *key, double fallback);
int golden_int(const ct_json *o, const char *key);
const char *golden_str(const ct_json *o, const char *key);
double golden_at(const ct_json *array, size_t i);

/* A sample is {n, step, sum, abs_sum, values}: every step-th of n values, and sums over all. Values may be off by
 * `tolerance` times the largest magnitude of the sample (floor: of at least that); sums by that times n. Returns the
 * largest relative error. */
double golden_compare(const char *what, const ct_json *sample, const float *x, size_t n, double tolerance,
		      double floor);
/* A digest (make_golden_resnet.py) is {n, norm, scale, most, along, step, values}: along is the projection on
 * fill_floats(stream), values are every step-th. Norm and projection may be off by `tolerance` times the scale (the norm, or
 * that of a tensor beside it), values by that times the largest magnitude. Returns the largest of these relative errors. */
double golden_compare_digest(const char *what, const ct_json *digest, uint32_t stream, const float *x, size_t n,
			     double tolerance);
/* Largest magnitude of a sample. */
double golden_size(const ct_json *sample);

struct ct_optim_opts golden_optim(const ct_json *o);

/* Pseudo images [rows,28,28] and labels of a step: noise, and stripes that depend on the label (images() of
 * make_golden.py). */
void golden_images(uint32_t step, int rows, uint8_t *x, int32_t *labels);
/* The same in colour: [rows,size,size,3] (images() of make_golden_resnet.py). */
void golden_photos(uint32_t step, int rows, int size, uint8_t *x, int32_t *labels);

#endif
