#include "tests/nn/op_cases.h"

#include <string.h>

#include "base/status.h"

#define XENT CT_LOSS_CROSS_ENTROPY
#define MSE CT_LOSS_MSE
/* clang-format off */
const struct op_case op_cases[] = {
	{"linear", {7, 1, 1}, 3, "linear 5", 5, XENT, 0, false},
	{"linear without bias", {13, 1, 1}, 5, "linear 3 bias=false", 3, XENT, 0, false},
	{"linear of planes", {2, 3, 5}, 4, "linear 6", 6, XENT, 0, false},
	{"linear of one feature", {1, 1, 1}, 2, "linear 2", 2, XENT, 0, false},
	{"linear wide", {33, 1, 1}, 17, "linear 65;relu;linear 31;relu;linear 10", 10, XENT, 0, false},
	{"one row", {19, 1, 1}, 1, "linear 11;relu;linear 4", 4, XENT, 0, false},
	{"cross-entropy, 2 classes", {4, 1, 1}, 3, "linear 2", 2, XENT, 0, false},
	{"cross-entropy, 37 classes", {9, 1, 1}, 4, "linear 37", 37, XENT, 0, false},
	{"label smoothing", {9, 1, 1}, 6, "linear 7", 7, XENT, 0.1f, false},
	{"mixed labels", {9, 1, 1}, 6, "linear 7", 7, XENT, 0, true},
	{"mixed labels, smoothed", {5, 1, 1}, 7, "linear 12;relu;linear 19", 19, XENT, 0.2f, true},
	{"weighted classes", {9, 1, 1}, 6, "linear 7", 7, XENT, 0, false},
	{"weighted classes, mixed and smoothed", {5, 1, 1}, 7, "linear 12;relu;linear 19", 19, XENT, 0.2f, true},
	{"mse", {10, 1, 1}, 4, "linear 10;relu;linear 5", 5, MSE, 0, false},
	{"mse, 1 output", {3, 1, 1}, 7, "linear 1", 1, MSE, 0, false},
	{"conv 3x3", {3, 7, 6}, 2, "conv2d 5 kernel=3 padding=1;flatten;linear 4", 4, XENT, 0, false},
	{"conv 5x5, 1 channel", {1, 9, 11}, 3, "conv2d 16 kernel=5 padding=2;relu;flatten;linear 3", 3, XENT, 0, false},
	{"conv 1x1", {6, 5, 4}, 2, "conv2d 9 kernel=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv without bias", {2, 5, 5}, 3, "conv2d 3 kernel=3 bias=false;flatten;linear 3", 3, XENT, 0, false},
	{"conv stride 2", {3, 9, 8}, 2, "conv2d 4 kernel=3 stride=2 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv odd window", {2, 8, 9}, 2, "conv2d 3 kernel=3x2 stride=2x3 padding=1x0;flatten;linear 3", 3, XENT, 0, false},
	{"conv padding beyond kernel", {2, 4, 4}, 2, "conv2d 3 kernel=2 padding=2;flatten;linear 3", 3, XENT, 0, false},
	{"conv stride beyond kernel", {2, 9, 9}, 2, "conv2d 3 kernel=1 stride=3;flatten;linear 3", 3, XENT, 0, false},
	{"conv dilation 2", {2, 9, 8}, 2, "conv2d 3 kernel=3 dilation=2 padding=2;flatten;linear 3", 3, XENT, 0, false},
	{"conv dilation 1x3, stride", {2, 7, 10}, 2, "conv2d 4 kernel=3 dilation=1x3 stride=2x1;flatten;linear 3", 3, XENT, 0, false},
	{"conv 2 groups", {4, 6, 5}, 2, "conv2d 6 kernel=3 groups=2 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv depthwise", {5, 6, 6}, 2, "conv2d 5 kernel=3 groups=5 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv depthwise times 2", {3, 5, 6}, 2, "conv2d 6 kernel=3 groups=3 stride=2 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv 3 groups, 1x1", {6, 4, 4}, 2, "conv2d 9 kernel=1 groups=3;flatten;linear 3", 3, XENT, 0, false},
	{"conv covers the image", {3, 4, 5}, 3, "conv2d 6 kernel=4x5;flatten;linear 3", 3, XENT, 0, false},
	{"conv 17 channels", {17, 5, 5}, 2, "conv2d 19 kernel=3 padding=1;relu;conv2d 18 kernel=3;flatten;linear 3", 3, XENT, 0, false},
	{"batch norm of planes", {3, 4, 5}, 3, "conv2d 5 kernel=3 padding=1;batch_norm;flatten;linear 4", 4, XENT, 0, false},
	{"batch norm of vectors", {6, 1, 1}, 8, "linear 7;batch_norm;relu;linear 3", 3, XENT, 0, false},
	{"batch norm first", {3, 5, 4}, 4, "batch_norm eps=1e-3 momentum=0.3;flatten;linear 3", 3, XENT, 0, false},
	{"batch norm and ReLU", {2, 6, 7}, 3, "conv2d 17 kernel=3;batch_norm;relu;flatten;linear 3", 3, XENT, 0, false},
	{"batch norm, one row", {2, 4, 4}, 1, "conv2d 3 kernel=3 padding=1;batch_norm;relu;flatten;linear 3", 3, XENT, 0, false},
	{"relu alone", {11, 1, 1}, 3, "relu;linear 3", 3, XENT, 0, false},
	{"relu twice used", {4, 3, 3}, 3, "conv2d 4 kernel=1 name=c;relu name=r;conv2d 4 kernel=3 padding=1;add from=r;flatten;linear 3", 3, XENT, 0, false},
	{"max pool", {3, 8, 6}, 2, "conv2d 3 kernel=1;max_pool 2;flatten;linear 3", 3, XENT, 0, false},
	{"max pool cuts the rest", {2, 7, 9}, 2, "conv2d 3 kernel=1;max_pool 2;flatten;linear 3", 3, XENT, 0, false},
	{"max pool overlaps", {2, 7, 7}, 3, "conv2d 3 kernel=1;max_pool 3 stride=2 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"max pool odd window", {2, 7, 8}, 2, "conv2d 3 kernel=1;max_pool 2x3 stride=1x2 padding=1x0;flatten;linear 3", 3, XENT, 0, false},
	{"max pool after ReLU", {1, 8, 8}, 4, "conv2d 16 kernel=3 padding=1;relu;max_pool 2;flatten;linear 3", 3, XENT, 0, false},
	{"average pool", {3, 6, 8}, 2, "conv2d 3 kernel=1;avg_pool 2;flatten;linear 3", 3, XENT, 0, false},
	{"average pool with padding", {2, 7, 7}, 2, "conv2d 3 kernel=1;avg_pool 3 stride=2 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"average pool odd window", {2, 6, 7}, 2, "conv2d 3 kernel=1;avg_pool 3x2 stride=2x1;flatten;linear 3", 3, XENT, 0, false},
	{"global average pool", {3, 5, 7}, 3, "conv2d 6 kernel=3;global_avg_pool;linear 3", 3, XENT, 0, false},
	{"add of two branches", {3, 5, 5}, 2, "conv2d 4 kernel=3 padding=1 name=a;conv2d 4 kernel=1 from=input;add from=a;relu;flatten;linear 3", 3, XENT, 0, false},
	{"add of a value to itself", {4, 3, 3}, 2, "conv2d 4 kernel=3 padding=1 name=a;add from=a;flatten;linear 3", 3, XENT, 0, false},
	{"three users of one value", {2, 4, 4}, 2, "conv2d 3 kernel=1 name=a;conv2d 3 kernel=3 padding=1 name=b;conv2d 3 kernel=1 from=a;add from=b;add from=a;flatten;linear 3", 3, XENT, 0, false},
	{"sum of two ReLUs", {3, 4, 4}, 3, "conv2d 5 kernel=3 padding=1;relu name=a;conv2d 5 kernel=1 from=input;relu;add from=a;flatten;linear 3", 3, XENT, 0, false},
	{"three users of one norm", {16, 4, 4}, 3, "conv2d 16 kernel=1;batch_norm;relu name=a;conv2d 16 kernel=3 padding=1 name=b;conv2d 16 kernel=1 from=a;add from=b;add from=a;relu;"
		"flatten;linear 3", 3, XENT, 0, false},
	{"residual block", {4, 6, 6}, 2, "conv2d 8 kernel=3 padding=1 bias=false;batch_norm;relu name=r;conv2d 8 kernel=3 padding=1 bias=false;batch_norm;relu;"
		"conv2d 8 kernel=3 padding=1 bias=false;batch_norm;add from=r;relu;global_avg_pool;linear 3", 3, XENT, 0, false},
	{"residual block with projection", {4, 6, 6}, 2, "conv2d 6 kernel=3 padding=1;relu name=r;conv2d 8 kernel=3 stride=2 padding=1 bias=false;batch_norm name=m;"
		"conv2d 8 kernel=1 stride=2 bias=false from=r;batch_norm;add from=m;relu;flatten;linear 3", 3, XENT, 0, false},
	{"dropout of vectors", {9, 1, 1}, 5, "linear 21;relu;dropout 0.4;linear 3", 3, XENT, 0, false},
	{"dropout of planes", {2, 5, 5}, 3, "conv2d 5 kernel=3;dropout 0.25;flatten;linear 3", 3, XENT, 0, false},
	{"dropout of nothing", {9, 1, 1}, 3, "linear 8;dropout 0;linear 3", 3, XENT, 0, false},
	{"drop path of planes", {3, 5, 4}, 6, "conv2d 5 kernel=3 padding=1;drop_path 0.4;flatten;linear 3", 3, XENT, 0, false},
	{"drop path of vectors", {7, 1, 1}, 5, "linear 9;relu;drop_path 0.5;linear 3", 3, XENT, 0, false},
	{"drop path of pixels", {32, 1, 1}, 5, "conv2d 32 kernel=1;drop_path 0.4;flatten;linear 3", 3, XENT, 0, false},
	{"drop path and dropout of vectors", {7, 1, 1}, 5, "linear 9;relu;drop_path 0.5;dropout 0.3;linear 3", 3, XENT, 0, false},
	{"drop path in a residual block", {4, 6, 5}, 6, "conv2d 17 kernel=1 name=a;conv2d 17 kernel=3 padding=1;batch_norm;drop_path 0.5;add from=a;relu;flatten;linear 3", 3, XENT, 0, false},
	{"drop path of nothing", {4, 3, 3}, 3, "conv2d 4 kernel=1 name=a;conv2d 4 kernel=1;drop_path 0;add from=a;flatten;linear 3", 3, XENT, 0, false},
	{"flatten twice", {2, 3, 3}, 2, "flatten;flatten;linear 3", 3, XENT, 0, false},
	{"ends in a convolution", {3, 6, 6}, 2, "conv2d 5 kernel=3;relu;conv2d 4 kernel=4", 4, XENT, 0, false},
	{"ends in a global pool", {3, 6, 6}, 3, "conv2d 5 kernel=3;relu;conv2d 4 kernel=1;global_avg_pool", 4, XENT, 0, false},
	{"lenet-like", {1, 12, 12}, 3, "conv2d 6 kernel=5 padding=2;relu;max_pool 2;conv2d 16 kernel=3;relu;max_pool 2;flatten;linear 20;relu;linear 10", 10, XENT, 0, false},
	{"convnet-like", {1, 12, 12}, 4, "conv2d 16 kernel=5 padding=2;batch_norm;relu;max_pool 2;conv2d 32 kernel=5 padding=2;batch_norm;relu;max_pool 2;flatten;linear 10", 10, XENT, 0.05f, false},
	{"conv 3x3, 16 channels", {16, 8, 9}, 2, "conv2d 16 kernel=3 padding=1;relu;conv2d 32 kernel=3 padding=1 bias=false;flatten;linear 3", 3, XENT, 0, false},
	{"conv 3x3, 64 channels", {64, 10, 7}, 1, "conv2d 64 kernel=3 padding=1 bias=false;relu;conv2d 48 kernel=3;relu;global_avg_pool;linear 3", 3, XENT, 0, false},
	{"conv 3x3, many channels, one tile", {16, 4, 4}, 3, "conv2d 256 kernel=3 padding=1 bias=false;relu;conv2d 128 kernel=3 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"conv 32 groups", {64, 7, 6}, 2, "conv2d 128 kernel=3 padding=1 groups=32 bias=false;relu;conv2d 64 kernel=3 stride=2 padding=1 groups=32;flatten;linear 3", 3, XENT, 0, false},
	{"stem, blocks of 16", {3, 23, 22}, 1, "conv2d 32 kernel=7 stride=2 padding=3 bias=false;batch_norm;relu;max_pool 3 stride=2 padding=1;conv2d 32 kernel=3 padding=1;flatten;linear 3", 3, XENT, 0, false},
	{"residual blocks of 16, projection", {16, 9, 9}, 2, "conv2d 32 kernel=3 stride=2 padding=1 bias=false;batch_norm;relu;conv2d 32 kernel=3 padding=1 bias=false;batch_norm name=m;"
		"conv2d 32 kernel=1 stride=2 bias=false from=input;batch_norm;add from=m;relu name=r;conv2d 32 kernel=3 padding=1 bias=false;batch_norm;relu;"
		"conv2d 32 kernel=3 padding=1 bias=false;batch_norm;add from=r;relu;global_avg_pool;linear 3", 3, XENT, 0, false},
	{"bottleneck", {64, 6, 5}, 2, "conv2d 16 kernel=1 bias=false;batch_norm;relu;conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu;conv2d 64 kernel=1 bias=false;batch_norm;"
		"add from=input;relu;global_avg_pool;linear 3", 3, XENT, 0, false},
	{"norm and sum, no ReLU", {16, 5, 4}, 3, "conv2d 16 kernel=1 name=a;conv2d 16 kernel=3 padding=1;batch_norm;add from=a;conv2d 16 kernel=1;flatten;linear 3", 3, XENT, 0, false},
	{"norm and sum, ReLU, used twice", {16, 5, 4}, 3, "conv2d 32 kernel=1 name=a;conv2d 32 kernel=3 padding=1;batch_norm;add from=a;relu name=r;conv2d 32 kernel=1;batch_norm;relu;"
		"add from=r;flatten;linear 3", 3, XENT, 0, false},
	{"norm first in the sum", {16, 4, 4}, 3, "conv2d 48 kernel=3 padding=1;batch_norm name=n;conv2d 48 kernel=1 from=input;add from=n;relu;flatten;linear 3", 3, XENT, 0, false},
	{"norm and sum with the input", {16, 4, 3}, 3, "conv2d 16 kernel=3 padding=1;batch_norm;add from=input;relu;flatten;linear 3", 3, XENT, 0, false},
	{"norm read by others than the sum", {16, 4, 3}, 3, "conv2d 16 kernel=3 padding=1;batch_norm name=n;conv2d 16 kernel=1;add from=n;relu;flatten;linear 3", 3, XENT, 0, false},
	{"norm summed with itself", {16, 4, 3}, 3, "conv2d 16 kernel=3 padding=1;batch_norm name=n;add from=n;relu;flatten;linear 3", 3, XENT, 0, false},
	{"sum of a sum", {16, 4, 3}, 3, "conv2d 16 kernel=1 name=a;conv2d 16 kernel=3 padding=1;batch_norm;add from=a;conv2d 16 kernel=3 padding=1 from=a;batch_norm;"
		"add from=add1;relu;flatten;linear 3", 3, XENT, 0, false},
	{"norms, drop path, sum of blocks of 16", {16, 5, 5}, 7, "conv2d 48 kernel=1 name=a;conv2d 48 kernel=3 padding=1;batch_norm;drop_path 0.3;add from=a;relu name=r;"
		"conv2d 48 kernel=1;batch_norm;drop_path 0.4;add from=r;flatten;linear 3", 3, XENT, 0, false},
	{"norm in one place", {32, 3, 3}, 4, "conv2d 16 kernel=3;batch_norm;relu;conv2d 48 kernel=1;batch_norm;flatten;linear 3", 3, XENT, 0, false},
	{"norms of blocks, one row", {16, 5, 4}, 1, "conv2d 16 kernel=1 name=a;conv2d 16 kernel=3 padding=1;batch_norm;add from=a;relu;flatten;linear 3", 3, XENT, 0, false},
	{"norm of vectors, blocks of 16", {12, 1, 1}, 8, "linear 32;batch_norm;relu;linear 48;batch_norm;linear 3", 3, XENT, 0, false},
	{"convnet-like, MSE", {3, 8, 8}, 5, "conv2d 8 kernel=3;batch_norm;relu;max_pool 2;flatten;linear 3", 3, MSE, 0, false},
};
/* clang-format on */
const size_t n_op_cases = CT_ARRAY_LEN(op_cases);

const float *op_case_weights(const struct op_case *c)
{
	static const float weights[19] = {0.5f, 2,    1,    0.25f, 3,      1.5f, 0.75f, 1,    0.1f, 4,
					  1,    0.5f, 2.5f, 1,     0.125f, 1,    2,     0.3f, 1};

	return strncmp(c->name, "weighted", 8) == 0 ? weights : NULL;
}
