/* Computes convolutions as matrix products with the columns of im2col. Values are fp32 with channels last: x[N,H,W,C],
 * w[K,R,S,C/groups], y[N,P,Q,K]. A row of the im2col matrix corresponds to one position (n, p, q) of y. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

enum { CHUNK = 256 /* rows at a time */, REDUCED_BLOCK = 64 /* products between two roundings */ };

struct shape {
	int64_t h, w, c, k, r, s, p, q;                 /* c, k: of all groups */
	int64_t rows, groups, group_c, group_k, column; /* column: values of a row of im2col */
	const struct soft__window *win;
};

static struct shape shape_of(const struct soft__op *op)
{
	const struct soft__tensor *x, *w, *y;
	struct shape s = {.win = &op->window};

	x = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? &op->out[0] : &op->in[0];
	y = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? &op->out[0] : &op->in[1];
	w = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? &op->in[1]
	    : op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? &op->in[0]
										       : &op->out[0];
	s.h = x->dims[2];
	s.w = x->dims[3];
	s.c = x->dims[1];
	s.k = w->dims[0];
	s.r = w->dims[2];
	s.s = w->dims[3];
	s.p = y->dims[2];
	s.q = y->dims[3];
	s.rows = y->dims[0] * s.p * s.q;
	s.group_c = w->dims[1];
	s.groups = s.c / s.group_c;
	s.group_k = s.k / s.groups;
	s.column = s.r * s.s * s.group_c;
	return s;
}

/* Index in x of the channels that element (r, s) of the filter meets at the row; -1: padding. */
static int64_t place(const struct shape *s, int64_t row, int64_t r, int64_t t)
{
	const struct soft__window *win = s->win;
	const int64_t q = row % s->q, p = row / s->q % s->p, n = row / s->q / s->p,
		      h = p * win->stride[0] - win->pad[0] + (win->flipped ? s->r - 1 - r : r) * win->dilation[0],
		      w = q * win->stride[1] - win->pad[1] + (win->flipped ? s->s - 1 - t : t) * win->dilation[1];

	return h < 0 || w < 0 || h >= s->h || w >= s->w ? -1 : ((n * s->h + h) * s->w + w) * s->c;
}

static void gather(const struct shape *s, const float *x, int64_t first, int64_t n, int64_t group, float *columns)
{
	for (int64_t row = first; row < first + n; row++) {
		for (int64_t r = 0; r < s->r; r++) {
			for (int64_t t = 0; t < s->s; t++) {
				int64_t at = place(s, row, r, t);

				if (at < 0)
					memset(columns, 0, sizeof(float) * (size_t)s->group_c);
				else
					memcpy(columns, x + at + group * s->group_c,
					       sizeof(float) * (size_t)s->group_c);
				columns += s->group_c;
			}
		}
	}
}

static void scatter(const struct shape *s, float *x, int64_t first, int64_t n, int64_t group, const float *columns)
{
	for (int64_t row = first; row < first + n; row++) {
		for (int64_t r = 0; r < s->r; r++) {
			for (int64_t t = 0; t < s->s; t++) {
				int64_t at = place(s, row, r, t);

				for (int64_t c = 0; at >= 0 && c < s->group_c; c++)
					x[at + group * s->group_c + c] += columns[c];
				columns += s->group_c;
			}
		}
	}
}

/* c += a b as the engine does it */
static void product(const struct soft__arithmetic *e, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
		    int64_t a_column, const float *b, int64_t b_row, float *c, int64_t c_row)
{
	if (e->reduced) {
		for (int64_t p = 0; p < k; p += REDUCED_BLOCK) {
			soft__gemm(m, n, k - p < REDUCED_BLOCK ? k - p : REDUCED_BLOCK, a + p * a_column, a_row,
				   a_column, b + p * b_row, b_row, c, c_row);
			for (int64_t i = 0; i < m; i++)
				soft__round(CUDNN_DATA_HALF, c + i * c_row, n);
		}
		return;
	}
	if (e->wrong)
		k--;
	const int64_t first = k > 0 ? e->shift % k : 0;
	soft__gemm(m, n, k - first, a + first * a_column, a_row, a_column, b + first * b_row, b_row, c, c_row);
	if (first)
		soft__gemm(m, n, first, a, a_row, a_column, b, b_row, c, c_row);
}

/* The filters of a group as [column, group_k]. */
static void transpose(const struct shape *s, const float *w, float *to)
{
	for (int64_t k = 0; k < s->group_k; k++) {
		for (int64_t i = 0; i < s->column; i++)
			to[i * s->group_k + k] = w[k * s->column + i];
	}
}

static float *buffer(int64_t n)
{
	float *p = malloc(sizeof(float) * (size_t)n);

	if (!p)
		soft_gpu_fail("cudnn: out of memory");
	return p;
}

void soft__conv(const struct soft__op *op, const struct soft__arithmetic *e, float *const values[3])
{
	const struct shape s = shape_of(op);
	float *x = values[0], *w = values[1], *y = values[2];
	float *columns = buffer(CHUNK * s.column), *turned = buffer(s.column * s.group_k);

	memset(op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
	       : op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR     ? y
											: w,
	       0, sizeof(float) * (size_t)soft__count(&op->out[0]));
	for (int64_t g = 0; g < s.groups; g++) {
		float *filters = w + g * s.group_k * s.column;

		transpose(&s, filters, turned);
		for (int64_t row = 0; row < s.rows; row += CHUNK) {
			const int64_t n = s.rows - row < CHUNK ? s.rows - row : CHUNK;
			float *part = y + row * s.k + g * s.group_k;

			switch (op->kind) {
			case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
				gather(&s, x, row, n, g, columns);
				product(e, n, s.group_k, s.column, columns, s.column, 1, turned, s.group_k, part, s.k);
				break;
			case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
				gather(&s, x, row, n, g, columns);
				product(e, s.group_k, s.column, n, part, 1, s.k, columns, s.column, filters, s.column);
				break;
			default:
				memset(columns, 0, sizeof(float) * (size_t)(n * s.column));
				product(e, n, s.column, s.group_k, part, s.k, 1, filters, s.column, columns, s.column);
				scatter(&s, x, row, n, g, columns);
			}
		}
	}
	free(columns);
	free(turned);
}
