/* Scores of predictions, computed by hand, and the files of an evaluation. */
#include "tests/trainer/tmpdir.h"

#include <math.h>

#include "trainer/run/evaluation/eval_files.h"

enum { N = 6, CLASSES = 3 };

/* Labels, and the logits of two batches. Sample 5 is not evaluated. The predictions are 0 1 1 0 2. */
static const int32_t labels[N] = {0, 1, 0, 0, 2, 0};
static const float logits[5][CLASSES] = {{2, 0, 0}, {0, 5, 0}, {0, 1, 0}, {3, 0, 0}, {-1, -1, 4}};

static void make(struct ct_predictions *p)
{
	static const uint32_t first[] = {3, 0}, second[] = {1, 2, 4};
	float x[3][CLASSES];

	assert_ok(ct_predictions_create(N, CLASSES, p));
	p->step = 77;
	memcpy(x[0], logits[3], sizeof(x[0]));
	memcpy(x[1], logits[0], sizeof(x[1]));
	ct_predictions_add(p, first, (const int32_t[]){labels[3], labels[0]}, &x[0][0], 2);
	memcpy(x[0], logits[1], sizeof(x[0]));
	memcpy(x[1], logits[2], sizeof(x[1]));
	memcpy(x[2], logits[4], sizeof(x[2]));
	ct_predictions_add(p, second, (const int32_t[]){labels[1], labels[2], labels[4]}, &x[0][0], 3);
}

static void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-6)
		fail_msg("%.9g is not %.9g", a, b);
}

static void assert_class(const struct ct_class_score *c, uint32_t n, uint32_t predicted, uint32_t correct,
			 double precision, double recall, double f1)
{
	assert_int_equal(c->n, n);
	assert_int_equal(c->predicted, predicted);
	assert_int_equal(c->correct, correct);
	assert_near(c->precision, precision);
	assert_near(c->recall, recall);
	assert_near(c->f1, f1);
}

static void test_scores(void **state)
{
	(void)state;
	struct ct_predictions p;
	struct ct_scores s;
	make(&p);
	const float *row = ct_predictions_row(&p, 2);
	assert_near(row[CT_PREDICTION_CONFIDENCE], exp(1) / (exp(1) + 2));
	assert_near(row[CT_PREDICTION_PROBABILITY], 1 / (exp(1) + 2));
	assert_ok(ct_scores_create(&p, &s));
	assert_int_equal(s.n, 5);
	assert_int_equal(s.correct, 4);
	assert_class(&s.classes[0], 3, 2, 2, 1, 2.0 / 3, 0.8);
	assert_class(&s.classes[1], 1, 2, 1, 0.5, 1, 2.0 / 3);
	assert_class(&s.classes[2], 1, 1, 1, 1, 1, 1);
	assert_near(s.precision, 2.5 / 3);
	assert_near(s.f1, (0.8 + 2.0 / 3 + 1) / 3);
	const uint32_t wanted[] = {2, 1, 0, 0, 1, 0, 0, 0, 1};
	assert_memory_equal(s.confusion, wanted, sizeof(wanted));
	assert_int_equal(s.n_confused, 1);
	assert_int_equal(s.confused[0].label, 0);
	assert_int_equal(s.confused[0].predicted, 1);
	assert_int_equal(s.confused[0].n, 1);
	/* All confidences but the wrong one, 0.576 in bin 8, are in bins of their own or with other correct ones. */
	assert_int_equal(s.bins[8].n, 1);
	assert_near(s.bins[8].accuracy, 0);
	double error = 0, sum = 0;
	for (uint32_t i = 0; i < 5; i++) {
		const double c = ct_predictions_row(&p, i)[CT_PREDICTION_CONFIDENCE];

		error += i == 2 ? c : 1 - c;
	}
	for (int i = 0; i < CT_CALIBRATION_BINS; i++)
		sum += s.bins[i].n;
	assert_near(s.calibration_error, error / 5);
	assert_near(sum, 5);
	ct_scores_release(&s);
	ct_predictions_release(&p);
}

static void test_no_mistake(void **state)
{
	(void)state;
	struct ct_predictions p;
	struct ct_scores s;
	float x[2] = {1e30f, -1e30f};
	assert_ok(ct_predictions_create(1, 2, &p));
	assert_ok(ct_scores_create(&p, &s)); /* nothing evaluated */
	assert_near(s.f1 + s.calibration_error, 0);
	ct_scores_release(&s);
	ct_predictions_add(&p, (const uint32_t[]){0}, (const int32_t[]){0}, x, 1);
	assert_ok(ct_scores_create(&p, &s));
	assert_int_equal(s.n_confused, 0);
	assert_near(s.precision, 1); /* of the class that occurs */
	assert_int_equal(s.bins[CT_CALIBRATION_BINS - 1].n, 1);
	ct_scores_release(&s);
	ct_predictions_release(&p);
}

static void test_not_finite(void **state)
{
	(void)state;
	struct ct_predictions p;
	struct ct_scores s;
	float x[2] = {NAN, 1};
	assert_ok(ct_predictions_create(1, 2, &p));
	ct_predictions_add(&p, (const uint32_t[]){0}, (const int32_t[]){1}, x, 1);
	assert_ok(ct_scores_create(&p, &s));
	assert_int_equal(s.n, 1);
	assert_int_equal(s.bins[0].n, 1);
	assert_near(s.bins[0].confidence, 0);
	assert_true(isfinite(s.calibration_error));
	ct_scores_release(&s);
	ct_predictions_release(&p);
}

static void test_files(void **state)
{
	(void)state;
	static const struct ct_dataset_spec spec = {
		.name = "synthetic", .n = N, .c = 1, .h = 2, .w = 2, .n_classes = CLASSES, .seed = 1};
	struct ct_predictions p, q;
	ct_dataset *d;
	const char *dir = in_tmpdir("eval");
	make(&p);
	assert_ok(ct_dataset_open(&spec, &d));
	assert_fails(ct_eval_files_load(dir, &q), CT_NOT_FOUND, "evaluation.json");
	ct_predictions_release(&q);
	assert_ok(ct_eval_files_write(dir, &p, d, "somewhere"));
	assert_ok(ct_eval_files_load(dir, &q));
	assert_int_equal(q.step, 77);
	assert_int_equal(q.n, N);
	assert_int_equal(q.n_classes, CLASSES);
	for (uint32_t i = 0; i < N; i++) {
		for (int k = 0; k < CT_PREDICTION_COLUMNS; k++)
			assert_near(ct_predictions_row(&q, i)[k], ct_predictions_row(&p, i)[k]);
	}
	ct_predictions_release(&q);
	/* A file that was changed. */
	static const char *const bad[] = {
		"x\n6,0,0,1,1,k\n",   "x\n0,3,0,1,1,k\n",      "x\n0,0,-1,1,1,k\n", "x\n0,0,nan,1,1,k\n",
		"x\n0,0,0,1.5,1,k\n", "x\n0,0,0,1,-1e300,k\n", "x\n0,0\n"};
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		assert_ok(ct_file_replace(in_tmpdir("eval/predictions.csv"), bad[i], strlen(bad[i])));
		assert_fails(ct_eval_files_load(dir, &q), CT_DATA, "predictions.csv:2");
		ct_predictions_release(&q);
	}
	ct_dataset_close(d);
	ct_predictions_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores), cmocka_unit_test(test_no_mistake),
					   cmocka_unit_test(test_not_finite), cmocka_unit_test(test_files)};

	return cmocka_run_group_tests_name("predictions", tests, tmpdir_setup, tmpdir_teardown);
}
