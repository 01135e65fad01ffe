/* Compares LARS and LAMB on given gradients with formulas in double precision. */
#include "nn/optim/optim.h"

#include <math.h>

#include "tests/nn/optim_rig.h"

static double norm(const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i] * x[i];
	return sqrt(sum);
}

/* One update of a parameter by the formulas of nn/optim/optim.h, in double. d: scratch. */
static void large_batch_update(const struct ct_optim_opts *o, bool weight, int t, double lr, size_t n, double *w,
			       const float *g, double *m, double *v, double *d)
{
	double decay = weight ? o->weight_decay : 0;

	for (size_t i = 0; i < n; i++)
		d[i] = (double)g[i];
	if (o->kind == CT_LARS) {
		double wn = norm(w, n), gn = norm(d, n), q = 1;

		if (weight && wn > 0 && gn > 0)
			q = o->trust * wn / (gn + decay * wn + 1e-8);
		for (size_t i = 0; i < n; i++) {
			m[i] = o->momentum * m[i] + q * (d[i] + (gn > 0 ? decay * w[i] : 0));
			w[i] -= lr * m[i];
		}
		return;
	}
	for (size_t i = 0; i < n; i++) {
		m[i] = o->beta1 * m[i] + (1 - o->beta1) * d[i];
		v[i] = o->beta2 * v[i] + (1 - o->beta2) * d[i] * d[i];
		d[i] = m[i] / (1 - pow(o->beta1, t)) / (sqrt(v[i] / (1 - pow(o->beta2, t))) + o->eps) + decay * w[i];
	}
	double wn = norm(w, n), un = norm(d, n), ratio = weight && wn > 0 && un > 0 ? wn / un : 1;
	for (size_t i = 0; i < n; i++)
		w[i] -= lr * ratio * d[i];
}

/* Parameter `zero` starts as 0, and parameter `still` has no gradient: neither has a trust ratio. */
static void check_large_batch(const struct ct_optim_opts *opts, int zero, int still)
{
	struct rig r;
	ct_optim *o;

	open_rig(&r);
	int n_params = ct_graph_n_params(r.graph);
	double *w[8], *m[8], *v[8], *d[8];
	float g[64] = {0};
	assert_true(n_params <= 8);
	assert_ok(import_now(r.net, on_host(ct_net_params(r.net)), zero, g));
	for (int i = 0; i < n_params; i++) {
		size_t n = ct_graph_param(r.graph, i)->n;
		float *x = export_param(r.net, on_host(ct_net_params(r.net)), i);

		w[i] = CT_NEW_ARRAY(double, 4 * n);
		m[i] = w[i] + n;
		v[i] = m[i] + n;
		d[i] = v[i] + n;
		for (size_t k = 0; k < n; k++)
			w[i][k] = (double)x[k];
		ct_free(x);
	}
	assert_ok(ct_optim_create(r.net, opts, &o));
	for (int t = 1; t <= 6; t++) {
		double lr = 0.5 / t;

		for (int i = 0; i < n_params; i++) {
			const struct ct_param *p = ct_graph_param(r.graph, i);

			assert_true(p->n <= CT_ARRAY_LEN(g));
			fill_floats((uint32_t)(10 * t + i), g, p->n);
			for (size_t k = 0; k < p->n; k++)
				g[k] *= i == still ? 0.0f : 1e3f;
			assert_ok(import_now(r.net, on_host(ct_net_grads(r.net)), i, g));
			large_batch_update(opts, p->kind == CT_PARAM_WEIGHT, t, lr, p->n, w[i], g, m[i], v[i], d[i]);
		}
		assert_ok(update_now(o, lr, NULL));
	}
	for (int i = 0; i < n_params; i++) {
		float *x = export_param(r.net, on_host(ct_net_params(r.net)), i);
		size_t n = ct_graph_param(r.graph, i)->n;
		double scale = 1 + norm(w[i], n);

		for (size_t k = 0; k < n; k++)
			assert_float_equal(x[k], w[i][k], 1e-6 * scale);
		ct_free(x);
		ct_free(w[i]);
	}
	ct_optim_destroy(o);
	rig_close(&r);
}

static void test_large_batch(void **state)
{
	struct ct_optim_opts no_momentum = lars;

	(void)state;
	no_momentum.momentum = 0;
	for (int zero = 0; zero < 5; zero += 4) { /* fc1.weight, fc2.weight */
		for (int still = 0; still < 5; still += 4) {
			check_large_batch(&lars, zero, still);
			check_large_batch(&no_momentum, zero, still);
			check_large_batch(&lamb, zero, still);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
