/* Enumerations for configuration keys whose value is one of several named choices. To add a choice, add it to one of
 * these lists, or to the list of the library that implements it (CT_MODELS in nn/models/model.h, CT_OPTIMIZERS and
 * CT_SCHEDULES in nn/optim, CT_PRECISIONS and CT_RECOMPUTES in nn/engine.h). The parser, the documentation, the JSON
 * Schema and the dump use these lists. Names that are only looked up in a registry (device, train.engine, dist.backend)
 * remain strings. */
#ifndef CT_TRAINER_CONFIG_CHOICES_H
#define CT_TRAINER_CONFIG_CHOICES_H

#include "base/choice.h"

#define CT_CFG_LOSSES(X)                              \
	X(CT_CFG_LOSS_AUTO, "auto")                   \
	X(CT_CFG_LOSS_CROSS_ENTROPY, "cross_entropy") \
	X(CT_CFG_LOSS_MSE, "mse")
#define CT_CFG_INITS(X) X(CT_CFG_INIT_AUTO, "auto") X(CT_CFG_INIT_PYTORCH, "pytorch") X(CT_CFG_INIT_KAIMING, "kaiming")
#define CT_CFG_STEMS(X) X(CT_CFG_STEM_AUTO, "auto") X(CT_CFG_STEM_IMAGENET, "imagenet") X(CT_CFG_STEM_CIFAR, "cifar")
#define CT_CFG_BNS(X) X(CT_CFG_BN_LOCAL, "local") X(CT_CFG_BN_SYNC, "sync") X(CT_CFG_BN_BROADCAST, "broadcast")
#define CT_CFG_DATA_SETS(X)                           \
	X(CT_CFG_DATA_MNIST, "mnist")                 \
	X(CT_CFG_DATA_FASHION_MNIST, "fashion_mnist") \
	X(CT_CFG_DATA_IDX, "idx")                     \
	X(CT_CFG_DATA_CIFAR10, "cifar10")             \
	X(CT_CFG_DATA_CIFAR100, "cifar100")           \
	X(CT_CFG_DATA_IMAGEFOLDER, "imagefolder")     \
	X(CT_CFG_DATA_SHARDS, "shards")               \
	X(CT_CFG_DATA_SYNTHETIC, "synthetic")         \
	X(CT_CFG_DATA_SYNTHETIC_REGRESSION, "synthetic_regression")
#define CT_CFG_SHUFFLES(X)                 \
	X(CT_CFG_SHUFFLE_GLOBAL, "global") \
	X(CT_CFG_SHUFFLE_WINDOW, "window") X(CT_CFG_SHUFFLE_NONE, "none") X(CT_CFG_SHUFFLE_BALANCED, "balanced")
#define CT_CFG_ON_DEVICES(X) \
	X(CT_CFG_ON_DEVICE_AUTO, "auto") X(CT_CFG_ON_DEVICE_ON, "on") X(CT_CFG_ON_DEVICE_OFF, "off")
#define CT_CFG_DECODES(X) X(CT_CFG_DECODE_EXACT, "exact") X(CT_CFG_DECODE_FAST, "fast")
#define CT_CFG_LR_RULES(X) X(CT_CFG_LR_RULE_NONE, "none") X(CT_CFG_LR_RULE_LINEAR, "linear")
#define CT_CFG_CONSOLES(X)               \
	X(CT_CFG_CONSOLE_AUTO, "auto")   \
	X(CT_CFG_CONSOLE_LIVE, "live")   \
	X(CT_CFG_CONSOLE_PLAIN, "plain") \
	X(CT_CFG_CONSOLE_OFF, "off")

#define CT_CFG_REDUCE_DTYPES(X)             \
	X(CT_CFG_REDUCE_DTYPE_AUTO, "auto") \
	X(CT_CFG_REDUCE_DTYPE_FP32, "fp32") \
	X(CT_CFG_REDUCE_DTYPE_BF16, "bf16") \
	X(CT_CFG_REDUCE_DTYPE_FP16, "fp16")
#define CT_CFG_METRICS(X) X(CT_CFG_METRIC_LOSS, "loss") X(CT_CFG_METRIC_TOP1, "top1")
#define CT_CFG_BINDS(X)             \
	X(CT_CFG_BIND_AUTO, "auto") \
	X(CT_CFG_BIND_NUMA, "numa") \
	X(CT_CFG_BIND_CORE, "core") \
	X(CT_CFG_BIND_OFF, "off")
#define CT_CFG_SELF_CHECKS(X) \
	X(CT_CFG_SELF_CHECK_AUTO, "auto") X(CT_CFG_SELF_CHECK_ON, "on") X(CT_CFG_SELF_CHECK_OFF, "off")
#define CT_CFG_GRAPHS(X) X(CT_CFG_GRAPH_AUTO, "auto") X(CT_CFG_GRAPH_ON, "on") X(CT_CFG_GRAPH_OFF, "off")

enum ct_cfg_loss { CT_CFG_LOSSES(CT_CHOICE_ID) };
enum ct_cfg_init { CT_CFG_INITS(CT_CHOICE_ID) };
enum ct_cfg_stem { CT_CFG_STEMS(CT_CHOICE_ID) };
enum ct_cfg_bn { CT_CFG_BNS(CT_CHOICE_ID) };
enum ct_cfg_data { CT_CFG_DATA_SETS(CT_CHOICE_ID) };
enum ct_cfg_shuffle { CT_CFG_SHUFFLES(CT_CHOICE_ID) };
enum ct_cfg_on_device { CT_CFG_ON_DEVICES(CT_CHOICE_ID) };
enum ct_cfg_decode { CT_CFG_DECODES(CT_CHOICE_ID) };
enum ct_cfg_lr_rule { CT_CFG_LR_RULES(CT_CHOICE_ID) };
enum ct_cfg_metric { CT_CFG_METRICS(CT_CHOICE_ID) };
enum ct_cfg_bind { CT_CFG_BINDS(CT_CHOICE_ID) };
enum ct_cfg_graph { CT_CFG_GRAPHS(CT_CHOICE_ID) };
enum ct_cfg_self_check { CT_CFG_SELF_CHECKS(CT_CHOICE_ID) };
enum ct_cfg_reduce_dtype { CT_CFG_REDUCE_DTYPES(CT_CHOICE_ID) };
enum ct_cfg_console { CT_CFG_CONSOLES(CT_CHOICE_ID) };

#endif
