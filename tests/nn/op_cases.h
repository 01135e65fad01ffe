/* Small models that cover every operation and unusual shapes. test_gradients compares ref with finite differences, and
 * test_conformance compares every other engine with ref. */
#ifndef CT_TESTS_NN_OP_CASES_H
#define CT_TESTS_NN_OP_CASES_H

#include "nn/models/model.h"

struct op_case {
	const char *name;
	struct ct_shape input;
	int batch;
	const char *layers; /* joined by ';' */
	int n_outputs;
	enum ct_loss loss;
	float smoothing;
	bool mixed; /* rows have two labels */
};

extern const struct op_case op_cases[];
extern const size_t n_op_cases;
/* Returns the class weights [n_outputs] of a case whose name starts with "weighted", and NULL for others. */
const float *op_case_weights(const struct op_case *c);

#endif
