/* Builds the graph of a named model or of a list of layers, including its loss head. */
#ifndef CT_NN_MODELS_MODEL_H
#define CT_NN_MODELS_MODEL_H

#include "nn/engine.h"

/* The named models, from which the configuration key model.name takes its choices. */
#define CT_MODELS(X)                                   \
	X(CT_MODEL_MLP, "mlp")                         \
	X(CT_MODEL_LENET, "lenet")                     \
	X(CT_MODEL_CONVNET, "convnet")                 \
	X(CT_MODEL_LAYERS, "layers")                   \
	X(CT_MODEL_RESNET18, "resnet18")               \
	X(CT_MODEL_RESNET34, "resnet34")               \
	X(CT_MODEL_RESNET50, "resnet50")               \
	X(CT_MODEL_RESNET101, "resnet101")             \
	X(CT_MODEL_RESNET152, "resnet152")             \
	X(CT_MODEL_RESNEXT50_32X4D, "resnext50_32x4d") \
	X(CT_MODEL_WIDE_RESNET50_2, "wide_resnet50_2") \
	X(CT_MODEL_RESNET20, "resnet20")               \
	X(CT_MODEL_RESNET32, "resnet32")               \
	X(CT_MODEL_RESNET44, "resnet44")               \
	X(CT_MODEL_RESNET56, "resnet56")
enum ct_model { CT_MODELS(CT_CHOICE_ID) };

enum ct_loss { CT_LOSS_CROSS_ENTROPY, CT_LOSS_MSE };

struct ct_model_spec {
	const char *name; /* one of CT_MODELS */
	struct ct_shape input;
	int n_outputs; /* number of classes or regression targets; 0 (model "layers" only): that of the last layer */
	enum ct_loss loss;
	float label_smoothing; /* [0,1), cross-entropy only */
	const int *hidden;     /* mlp: hidden widths, n_hidden >= 0 */
	int n_hidden;
	float dropout;             /* mlp: probability of the dropout after each hidden ReLU; 0: none */
	const char *const *layers; /* "layers": one string per layer */
	int n_layers;
	/* resnets */
	bool small_stem; /* start with a 3x3 convolution, stride 1, and no pooling, for 32x32 images; always on in
			  * ResNet-20..56 */
	bool zero_gamma; /* initialize gamma of the last batch norm in each block to 0 */
	/* Stochastic depth, [0,1): block i of n (counted from 0 over all stages) drops its branch with probability
	 * drop_path * i/(n-1). This is the linear rule of Huang et al. 2016 as in torchvision (ConvNeXt, Swin) and
	 * timm. 0: none. */
	float drop_path;
};

/* Builds a finished graph, which the caller owns. Errors are CT_CONFIG; the message names the model, the number of the
 * layer and its string, and makes a suggestion.
 *   mlp      flatten, [linear, ReLU, dropout?]*, linear; parameters fc1.weight ... fcN.bias
 *   lenet    conv1 1->6 5x5 pad 2, ReLU, maxpool 2, conv2 6->16 5x5, ReLU, maxpool 2, fc1 120, fc2 84, fc3 (for
 *            inputs of 28x28 or larger)
 *   convnet  two blocks conv 5x5 pad 2 (16, 32) + BN + ReLU + maxpool 2, then linear; names layer1.0,
 *            layer1.1, layer2.0, layer2.1, fc, as in the PyTorch mnist-distributed tutorial
 *   resnet18 resnet34 resnet50 resnet101 resnet152   He et al. 2015, v1.5 (stride in the 3x3 convolution); names,
 *            shapes and order of all tensors as in torchvision: conv1.weight, bn1.weight, layer1.0.conv1.weight ...
 *            fc.bias
 *   resnext50_32x4d wide_resnet50_2                  Xie et al. 2016, Zagoruyko et al. 2016
 *   resnet20 resnet32 resnet44 resnet56              He et al. 2015, section 4.2, for CIFAR: 16, 32, 64 channels;
 *            the paper's shortcuts are option A; here, as in most PyTorch code, they are a 1x1 convolution with BN
 *            where the shape changes (option B)
 *   layers   one string per layer; the loss is appended:
 *              conv2d CHANNELS kernel=K [stride=1 padding=0 dilation=1 groups=1 bias=true]
 *              linear FEATURES [bias=true]           batch_norm [eps=1e-5 momentum=0.1]
 *              max_pool KERNEL [stride=KERNEL padding=0 dilation=1]    avg_pool KERNEL [stride=KERNEL padding=0]
 *              add from=LAYER    relu    global_avg_pool    flatten    dropout P    drop_path P
 *            Every layer accepts name=NAME (default: conv1, conv2, fc1, bn1, relu1, pool1, ...) and from=LAYER (its
 *            input, by default the previous layer; "input" is the image). Kernel, stride, padding and dilation are N
 *            or HxW. The last layer has n_outputs outputs. */
enum ct_status ct_model_build(const struct ct_model_spec *spec, ct_graph **out) CT_MUST_CHECK;
/* Returns the name of model i, or NULL past the end. Used for suggestions and `ctrain info`. */
const char *ct_model_name_at(size_t i);
/* Returns the default initialization of a model: Kaiming for the ResNets, as in torchvision, else PyTorch's. */
enum ct_init ct_model_init(const char *name);

#endif
