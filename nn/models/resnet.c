/* All networks are rows of one table and share two kinds of blocks. The width of a bottleneck is computed as in
 * torchvision, width * group_width / 64 * groups, which also covers ResNeXt and wide ResNets. The stride is in the 3x3
 * convolution, as in torchvision (v1.5). The order of the calls is the order of the tensors, so the branch of a block
 * comes before its shortcut, and convolutions before their norms, as in torchvision's state_dict. All nodes of a block,
 * including its sum and its last ReLU, are added between ct_graph_begin_block and ct_graph_end_block. */
#include "nn/models/resnet_impl.h"

#include <stdio.h>
#include <string.h>

#define MAX_STAGES 4
#define EPS 1e-5f
#define MOMENTUM 0.1f

static const struct net {
	const char *name;
	bool bottleneck;   /* 1x1, 3x3, 1x1 with 4 times the channels; else two 3x3 */
	int n[MAX_STAGES]; /* number of blocks in each stage; 0: the stage does not exist */
	int width;         /* channels of the 3x3 convolutions in the first stage, before group_width; doubles from
			    * stage to stage */
	int groups;        /* groups of the 3x3 convolution in a bottleneck block */
	int group_width;   /* channels per group in the first stage, like torchvision's width_per_group */
	bool cifar;        /* start with a 3x3 convolution with `width` channels */
} nets[] = {
	{"resnet18", false, {2, 2, 2, 2}, 64, 1, 64, false},
	{"resnet34", false, {3, 4, 6, 3}, 64, 1, 64, false},
	{"resnet50", true, {3, 4, 6, 3}, 64, 1, 64, false},
	{"resnet101", true, {3, 4, 23, 3}, 64, 1, 64, false},
	{"resnet152", true, {3, 8, 36, 3}, 64, 1, 64, false},
	{"resnext50_32x4d", true, {3, 4, 6, 3}, 64, 32, 4, false},
	{"wide_resnet50_2", true, {3, 4, 6, 3}, 64, 1, 128, false},
	{"resnet20", false, {3, 3, 3}, 16, 1, 64, true},
	{"resnet32", false, {5, 5, 5}, 16, 1, 64, true},
	{"resnet44", false, {7, 7, 7}, 16, 1, 64, true},
	{"resnet56", false, {9, 9, 9}, 16, 1, 64, true},
};

struct builder {
	ct_graph *g;
	const struct net *net;
	const struct ct_model_spec *spec;
	char prefix[32]; /* "layer1.0." */
	int block, n_blocks;
};

static const struct net *find(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(nets); i++) {
		if (!strcmp(nets[i].name, name))
			return &nets[i];
	}
	return NULL;
}

/* Returns the prefix of the block followed by the name of the layer. */
struct name {
	char s[64];
};

static struct name name_of(const struct builder *b, const char *layer, int number)
{
	struct name n;

	if (number)
		snprintf(n.s, sizeof(n.s), "%s%s%d", b->prefix, layer, number);
	else
		snprintf(n.s, sizeof(n.s), "%s%s", b->prefix, layer);
	return n;
}

/* Adds convI and bnI. */
static int conv_bn(struct builder *b, int i, int x, int k, struct ct_window win, int groups)
{
	x = ct_graph_conv2d(b->g, name_of(b, "conv", i).s, x, k, win, groups, false);
	return ct_graph_batch_norm(b->g, name_of(b, "bn", i).s, x, EPS, MOMENTUM);
}

static int relu(struct builder *b, int i, int x)
{
	return ct_graph_relu(b->g, name_of(b, "relu", i).s, x);
}

/* Adds the residual branch up to its last batch norm. */
static int branch(struct builder *b, int x, int width, int stride)
{
	const struct net *net = b->net;

	if (!net->bottleneck) {
		x = relu(b, 1, conv_bn(b, 1, x, width, ct_window_square(3, stride, 1), 1));
		return conv_bn(b, 2, x, width, ct_window_square(3, 1, 1), 1);
	}
	int inner = width * net->group_width / 64 * net->groups;
	x = relu(b, 1, conv_bn(b, 1, x, inner, ct_window_square(1, 1, 0), 1));
	x = relu(b, 2, conv_bn(b, 2, x, inner, ct_window_square(3, stride, 1), net->groups));
	return conv_bn(b, 3, x, width * 4, ct_window_square(1, 1, 0), 1);
}

static int block(struct builder *b, int x, int width, int stride)
{
	ct_graph *g = b->g;
	int out = b->net->bottleneck ? width * 4 : width;
	bool same = stride == 1 && ct_graph_node(g, x)->shape.c == out;

	ct_graph_begin_block(g);
	int y = branch(b, x, width, stride);
	if (b->spec->zero_gamma)
		ct_graph_zero_gamma(g, y);
	/* The linear rule of Huang et al. 2016, which gives 0 for the first block, as in torchvision's ConvNeXt and
	 * timm's ResNets. */
	float p =
		b->n_blocks > 1 ? b->spec->drop_path * (float)b->block / (float)(b->n_blocks - 1) : b->spec->drop_path;
	if (p != 0)
		y = ct_graph_drop_path(g, name_of(b, "drop_path", 0).s, y, p);
	if (!same) {
		x = ct_graph_conv2d(g, name_of(b, "downsample.0", 0).s, x, out, ct_window_square(1, stride, 0), 1,
				    false);
		x = ct_graph_batch_norm(g, name_of(b, "downsample.1", 0).s, x, EPS, MOMENTUM);
	}
	x = relu(b, 0, ct_graph_add(g, name_of(b, "add", 0).s, y, x));
	ct_graph_end_block(g);
	b->block++;
	return x;
}

enum ct_status ct__resnet_build(ct_graph *g, const struct ct_model_spec *spec, int *logits)
{
	struct builder b = {.g = g, .net = find(spec->name), .spec = spec};

	if (!b.net)
		return CT_FAIL(CT_BUG, "nn/models/resnet.c has no network %s", spec->name);
	int x, width = b.net->width;
	if (!(spec->drop_path >= 0 && spec->drop_path < 1))
		return CT_FAIL(CT_CONFIG, "the probability of stochastic depth, %g, must be in [0, 1)",
			       (double)spec->drop_path);
	for (int i = 0; i < MAX_STAGES; i++)
		b.n_blocks += b.net->n[i];
	bool small = b.net->cifar || spec->small_stem;
	x = relu(&b, 0, conv_bn(&b, 1, 0, width, small ? ct_window_square(3, 1, 1) : ct_window_square(7, 2, 3), 1));
	if (!small)
		x = ct_graph_max_pool(g, "maxpool", x, ct_window_square(3, 2, 1));
	for (int i = 0; i < MAX_STAGES; i++, width *= 2) {
		for (int k = 0; k < b.net->n[i]; k++) {
			snprintf(b.prefix, sizeof(b.prefix), "layer%d.%d.", i + 1, k);
			x = block(&b, x, width, i > 0 && k == 0 ? 2 : 1);
		}
	}
	x = ct_graph_global_avg_pool(g, "avgpool", x);
	*logits = ct_graph_linear(g, "fc", x, spec->n_outputs, true);
	return CT_OK;
}
