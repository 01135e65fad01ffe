/* Small models that hold every operation with odd shapes: ref against finite differences (test_gradients), every other
 * engine against ref (test_conformance). */
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

#endif
