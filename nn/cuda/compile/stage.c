/* The ends of a stage of a pipeline: its output, and the gradients of its output and input, which the caller has in
 * host memory as fp32 [N,C,H,W]. */
#include "nn/cuda/compile/compile.h"
#include "nn/cuda/compile/op.h"

enum ct_status ct__cuda_copy_task(struct cuda_program *p, int id, enum cuda_kind kind, enum cuda_array array,
				  size_t row_bytes, int buffer)
{
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, id, kind, &t));
	t->copy.array = array;
	t->copy.row_bytes = row_bytes;
	return ct__cuda_refer(p, &t->copy.at, buffer);
}

static size_t row_bytes(const struct cuda_value *v)
{
	return (size_t)v->shape.c * (size_t)v->shape.h * (size_t)v->shape.w * sizeof(float);
}

/* Converts the buffer `from`, which has the layout of v, and copies it to an array of the caller. */
static enum ct_status give(struct cuda_program *p, int id, enum cuda_kind kind, const struct cuda_value *v, int from,
			   enum cuda_array array)
{
	struct cuda_task *t;
	int to;

	CT_TRY(ct__cuda_buffer(p, row_bytes(v) * (size_t)p->base.n, &to));
	CT_TRY(ct__cuda_task(p, id, kind, &t));
	t->output = (struct ct__k_output_args){
		.n = p->base.n, .h = v->shape.h, .w = v->shape.w, .c = v->shape.c, .cp = v->cp, .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->output.x, from));
	CT_TRY(ct__cuda_refer(p, &t->output.y, to));
	return ct__cuda_copy_task(p, id, CUDA_COPY_OUT, array, row_bytes(v), to);
}

enum ct_status ct__cuda_forward_output(struct cuda_program *p, int id)
{
	const struct cuda_value *v = ct__cuda_value(p, cuda_node(p, id)->in[0]);

	return give(p, id, CUDA_OUTPUT, v, v->buffer, CUDA_BATCH_Y);
}

enum ct_status ct__cuda_backward_output(struct cuda_program *p, int id)
{
	const int in = cuda_node(p, id)->in[0];
	const struct cuda_value *v = ct__cuda_value(p, in);
	struct cuda_task *t;
	int from, part;

	CT_TRY(ct__cuda_buffer(p, row_bytes(v) * (size_t)p->base.n, &from));
	CT_TRY(ct__cuda_copy_task(p, id, CUDA_COPY_IN, CUDA_BACKWARD_DY, row_bytes(v), from));
	CT_TRY(ct__cuda_new_gradient(p, in, &part));
	CT_TRY(ct__cuda_task(p, id, CUDA_OUTPUT_BACKWARD, &t));
	t->input = (struct ct__k_input_args){.n_valid = p->base.n,
					     .n = p->base.n,
					     .h = v->shape.h,
					     .w = v->shape.w,
					     .c = v->shape.c,
					     .cp = v->cp,
					     .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->input.x, from));
	CT_TRY(ct__cuda_refer(p, &t->input.y, part));
	return ct__cuda_give_gradient(p, id, in, part, false);
}

enum ct_status ct__cuda_backward_input(struct cuda_program *p)
{
	const struct cuda_value *v = &p->values[0];

	return give(p, 0, CUDA_INPUT_BACKWARD, v, v->gradient.buffer, CUDA_BACKWARD_DX);
}
