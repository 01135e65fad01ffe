/* Models, errors and results of libctrain_infer. A model is a graph and the values of its tensors in the order of the
 * graph: parameters, then buffers. They are copied from the file, which is closed afterwards. The interface has codes
 * instead of statuses, and every function that can fail passes its result through ct__api_result, which clears the
 * error chain: nothing of ctrain's error handling is visible to the user of the library. */
#include <stdio.h>
#include <string.h>

#include "infer/api/api_impl.h"
#include "infer/ranking.h"

const struct ct_param *ct__api_tensor(const ct_graph *g, int i)
{
	const int n = ct_graph_n_params(g);

	return i < n ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n);
}

int ct__api_n_tensors(const ct_graph *g)
{
	return ct_graph_n_params(g) + ct_graph_n_buffers(g);
}

static int code_of(enum ct_status st)
{
	switch (st) {
	case CT_USAGE:
		return CTRAIN_ARGUMENT;
	case CT_NOT_FOUND:
	case CT_IO:
		return CTRAIN_FILE;
	case CT_DATA:
	case CT_CONFIG: /* of the model that the file describes */
		return CTRAIN_DATA;
	case CT_UNSUPPORTED:
		return CTRAIN_UNSUPPORTED;
	case CT_NOMEM:
		return CTRAIN_MEMORY;
	default:
		return CTRAIN_INTERNAL;
	}
}

int ct__api_result(enum ct_status st, struct ctrain_error *error)
{
	const int code = st < 0 ? code_of(st) : CTRAIN_OK;

	if (error) {
		error->code = code;
		snprintf(error->message, sizeof(error->message), "%s", st < 0 ? ct_error_message() : "");
	}
	if (st < 0)
		ct_error_clear();
	return code;
}

static enum ct_status check_tensor(const ct_safetensors *s, const char *where, const struct ct_param *p, int *at)
{
	struct ct_tensor_desc d;
	bool same;

	*at = ct_safetensors_find(s, p->name);
	if (*at < 0)
		return CT_FAIL(CT_DATA, "%s has no tensor \"%s\"", where, p->name);
	ct_safetensors_at(s, *at, &d, NULL);
	same = d.ndim == p->ndim;
	for (int i = 0; same && i < d.ndim; i++)
		same = d.dims[i] == p->dims[i];
	return same ? CT_OK
		    : CT_FAIL(CT_DATA, "%s: the shape of tensor \"%s\" differs from that in the model", where, p->name);
}

/* Checks all tensors before memory is allocated for them, so that a file cannot request more memory than its size. */
static enum ct_status read_values(ctrain_model *m, const ct_safetensors *s, const char *where)
{
	const int n_tensors = ct__api_n_tensors(m->graph);
	size_t n = 0;
	float *v;
	int at;

	for (int i = 0; i < n_tensors; i++) {
		CT_TRY(check_tensor(s, where, ct__api_tensor(m->graph, i), &at));
		n += ct__api_tensor(m->graph, i)->n;
	}
	CT_TRY_ALLOC(v = m->values = ct_realloc(NULL, n + 1, sizeof(float)));
	for (int i = 0; i < n_tensors; i++) {
		const struct ct_param *p = ct__api_tensor(m->graph, i);

		CT_TRY(check_tensor(s, where, p, &at));
		CT_TRY(ct_safetensors_read(s, at, v, p->n));
		v += p->n;
	}
	return CT_OK;
}

static enum ct_status load(ctrain_model *m, const ct_safetensors *s, const char *where)
{
	const struct ct_description *d = &m->description;
	enum ct_status st = ct_description_load(s, where, &m->description);

	if (st == CT_NOT_FOUND) /* the file was found */
		return CT_FAIL(CT_DATA, "%s was not written by ctrain: it does not describe its model", where);
	CT_TRY(st);
	CT_TRY(ct_model_build(&d->model, &m->graph));
	CT_TRY(read_values(m, s, where));
	m->info = (struct ctrain_info){.name = d->model.name,
				       .channels = d->model.input.c,
				       .height = d->model.input.h,
				       .width = d->model.input.w,
				       .outputs = d->model.n_outputs,
				       .regression = d->model.loss == CT_LOSS_MSE,
				       .images = d->resize > 0,
				       .n_classes = d->n_classes,
				       .classes = (const char *const *)d->classes};
	return CT_OK;
}

/* Takes s. */
static enum ct_status open_model(ct_safetensors *s, const char *where, ctrain_model **out)
{
	ctrain_model *m = CT_NEW(ctrain_model);
	enum ct_status st = m ? load(m, s, where) : CT_NOMEM;

	ct_safetensors_close(s);
	if (st < 0) {
		ctrain_model_close(m);
		return st;
	}
	*out = m;
	return CT_OK;
}

int ctrain_model_open(const char *path, ctrain_model **out, struct ctrain_error *error)
{
	ct_safetensors *s;
	enum ct_status st;

	if (!path || !out)
		return ct__api_result(CT_FAIL(CT_USAGE, "an argument of ctrain_model_open is NULL"), error);
	st = ct_safetensors_open(path, &s);
	return ct__api_result(st < 0 ? st : open_model(s, path, out), error);
}

int ctrain_model_open_memory(const void *bytes, size_t n, ctrain_model **out, struct ctrain_error *error)
{
	static const char where[] = "the model in memory";
	ct_safetensors *s;
	enum ct_status st;

	if (!bytes || !out)
		return ct__api_result(CT_FAIL(CT_USAGE, "an argument of ctrain_model_open_memory is NULL"), error);
	st = ct_safetensors_open_memory(bytes, n, where, &s);
	return ct__api_result(st < 0 ? st : open_model(s, where, out), error);
}

void ctrain_model_close(ctrain_model *m)
{
	if (!m)
		return;
	ct_graph_destroy(m->graph);
	ct_description_release(&m->description);
	ct_free(m->values);
	ct_free(m);
}

const struct ctrain_info *ctrain_model_info(const ctrain_model *m)
{
	return &m->info;
}

const char *ctrain_version(void)
{
	return CTRAIN_VERSION;
}

void ctrain_softmax(float *x, int n)
{
	if (n > 0)
		ct_softmax(x, n);
}

void ctrain_top_k(const float *x, int n, int k, int *label, float *value)
{
	if (k > 0)
		ct_top_k(x, n, k < n ? k : n, label, value);
}
