/* Computes a plan operation by operation, in fp32. Each result is rounded to the type of its tensor. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

static float *values_of(const struct soft__tensor *t)
{
	float *v = malloc(sizeof(float) * (size_t)soft__count(t));

	if (!v)
		soft_gpu_fail("cudnn: out of memory");
	return v;
}

static bool has(const struct soft__engine *e, cudnnBackendNumericalNote_t note)
{
	return e->numerical >> note & 1;
}

static struct soft__arithmetic arithmetic_of(const struct soft__engine *e, const struct soft__op *op)
{
	static atomic_uint executions;
	const bool is_32_bit = op->in[0].type == CUDNN_DATA_FLOAT && op->in[1].type == CUDNN_DATA_FLOAT;
	struct soft__arithmetic a = {0};

	a.down_convert = is_32_bit && has(e, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
	a.tf32 = is_32_bit && !a.down_convert && has(e, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
	a.wrong = soft__is_wrong(e->index);
	a.reduced = has(e, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
	if (has(e, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
		a.shift = 1 + 5 * atomic_fetch_add(&executions, 1);
	return a;
}

/* The operand as the engine sees it; the caller frees it. */
static float *operand(const struct soft__op *op, int i, const struct soft__arithmetic *a, const float *values)
{
	const struct soft__tensor *t = &op->in[i], *other = &op->in[1 - i];
	const int64_t n = soft__count(t);
	float *v = values_of(t);

	memcpy(v, values, sizeof(float) * (size_t)n);
	if (a->tf32)
		soft__round_tf32(v, n);
	else if (a->down_convert)
		soft__round(CUDNN_DATA_HALF, v, n);
	else if (t->is_virtual && t->type == CUDNN_DATA_FLOAT)
		soft__round(other->type, v, n);
	return v;
}

static void run_conv(const struct soft__engine *e, const struct soft__op *op, float **values)
{
	const struct soft__arithmetic a = arithmetic_of(e, op);
	float *in[2], *out = values[op->out_at[0]], *old = NULL, *all[3];
	const int64_t n = soft__count(&op->out[0]);
	const int result = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 2
			   : op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0
												      : 1;

	if (op->beta != 0) {
		old = values_of(&op->out[0]);
		memcpy(old, out, sizeof(float) * (size_t)n);
	}
	for (int i = 0, k = 0; i < 3; i++) {
		if (i != result) {
			in[k] = operand(op, k, &a, values[op->in_at[k]]);
			all[i] = in[k++];
		} else {
			all[i] = out;
		}
	}
	soft__conv(op, &a, all);
	for (int64_t i = 0; i < n && op->alpha != 1; i++)
		out[i] *= op->alpha;
	for (int64_t i = 0; old && i < n; i++)
		out[i] += op->beta * old[i];
	free(in[0]);
	free(in[1]);
	free(old);
}

static void run_op(const struct soft__run *r, const struct soft__op *op, float **values)
{
	float *in[3] = {NULL};

	for (int i = 0; i < op->n_in; i++)
		in[i] = values[op->in_at[i]];
	if (soft__is_conv(op->kind))
		run_conv(&r->engine, op, values);
	else if (op->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
		soft__pointwise_run(op, in, values[op->out_at[0]]);
	else
		soft__statistics_run(op, in[0], values[op->out_at[0]], values[op->out_at[1]]);
	for (int i = 0; i < op->n_out; i++) {
		soft__round(op->out[i].type, values[op->out_at[i]], soft__count(&op->out[i]));
		if (r->memory[op->out_at[i]])
			soft__store(&op->out[i], r->memory[op->out_at[i]], values[op->out_at[i]]);
	}
}

/* Whether the values that a tensor has before the plan matter. */
static bool is_read(const struct soft__graph *g, int tensor)
{
	for (int o = 0; o < g->n_ops; o++) {
		if (g->ops[o].beta != 0 && g->ops[o].out_at[0] == tensor)
			return true;
	}
	return !g->is_written[tensor];
}

void soft__interpret(const struct soft__run *r)
{
	const struct soft__graph *g = r->graph;
	float *values[SOFT__MAX_TENSORS];

	if (r->engine.workspace_bytes > 0)
		memset(r->workspace, 0xff, (size_t)r->engine.workspace_bytes); /* NaN */
	for (int i = 0; i < g->n_tensors; i++) {
		values[i] = values_of(&g->tensors[i]);
		if (is_read(g, i) && r->memory[i])
			soft__load(&g->tensors[i], r->memory[i], values[i]);
	}
	for (int i = 0; i < g->n_ops; i++)
		run_op(r, &g->ops[i], values);
	for (int i = 0; i < g->n_tensors; i++)
		free(values[i]);
}
