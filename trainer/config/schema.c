/* The table of all configuration keys. struct ct_key describes the columns. To add a key, add a field to
 * trainer/config/config.h and a row here. Parsing, `ctrain check`, `ctrain help KEY`, the dump, docs/CONFIG.md and the
 * JSON Schema all use this table. */
#include "trainer/config/config_impl.h"

#include <string.h>

#include "dist/comm/kind.h"

#define KEY(field, kind) .name = #field, .type = CT_KEY_##kind, .offset = offsetof(struct ct_config, field)
/* A key whose name is not that of a struct member, because it is below another key: data.train.size, below data.train.
 */
#define PART(key, field, kind) .name = key, .type = CT_KEY_##kind, .offset = offsetof(struct ct_config, field)
#define MLP "model.name=mlp"
#define RESNET_STEMS "resnet18|resnet34|resnet50|resnet101|resnet152|resnext50_32x4d|wide_resnet50_2"
#define RESNETS RESNET_STEMS "|resnet20|resnet32|resnet44|resnet56"
#define ENCODED "data.name=imagefolder|shards"
#define IMAGES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards|synthetic"
#define COLOR "data.name=cifar10|cifar100|imagefolder|shards|synthetic"
#define FILES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards"
#define SYNTHETIC "data.name=synthetic|synthetic_regression"
/* clang-format off */
#define WORDS(...) (const char *const[]){__VA_ARGS__, NULL}
/* clang-format on */
#define LEARNED .flags = CT_KEY_LEARNED
#define ADDED .flags = CT_KEY_LEARNED | CT_KEY_ADDED
#define SHARED .flags = CT_KEY_SHARED
#define ADVANCED .advanced = true

/* Enumerations are read and written as int through their offsets. */
_Static_assert(sizeof(enum ct_model) == sizeof(int) && sizeof(enum ct_precision) == sizeof(int), "enumerations");

#define NAMES(list, array) static const char *const array[] = {list(CT_CHOICE_NAME) NULL}
NAMES(CT_PRECISIONS, precisions);
NAMES(CT_MODELS, models);
NAMES(CT_CFG_LOSSES, losses);
NAMES(CT_CFG_INITS, inits);
NAMES(CT_CFG_STEMS, stems);
NAMES(CT_CFG_BNS, bns);
NAMES(CT_CFG_DATA_SETS, data_sets);
NAMES(CT_CFG_SHUFFLES, shuffles);
NAMES(CT_CFG_ON_DEVICES, on_devices);
NAMES(CT_CFG_DECODES, decodes);
NAMES(CT_OPTIMIZERS, optimizers);
NAMES(CT_CFG_LR_RULES, lr_rules);
NAMES(CT_SCHEDULES, schedules);
NAMES(CT_RECOMPUTES, recomputes);
NAMES(CT_AUTOTUNES, autotunes);
NAMES(CT_CFG_METRICS, metrics);
NAMES(CT_CFG_GRAPHS, graphs);
NAMES(CT_CFG_REDUCE_DTYPES, reduce_dtypes);
NAMES(CT_CFG_CONSOLES, consoles);

static const struct ct_section sections[] = {
	{"run", "Name and directory of the run."},
	{"launch",
	 "Number and placement of processes. Command-line options set the same keys: `--procs 4` means `launch.procs=4`."},
	{"model", "The network."},
	{"data",
	 "Training and evaluation data. `scripts/get_mnist.sh` downloads MNIST; `ctrain data digits` generates a substitute."},
	{"data.augment",
	 "Random augmentation of training images. The results do not depend on the number of ranks and threads."},
	{"batch", "Batch size. Set either `global` (over all ranks) or `per_rank`."},
	{"optim", "The optimizer."},
	{"schedule",
	 "Learning-rate schedule. Numbers of epochs may be fractions. The learning rate depends only on the step."},
	{"train", "Run length, evaluation, resuming and memory use."},
	{"train.early_stop", "End the run when evaluations no longer improve."},
	{"checkpoint", "When to save checkpoints. A run that is stopped by a signal always saves one first."},
	{"log", "Logs, metrics and console output."},
	{"dist", "Communication between ranks."},
	{"on",
	 "Commands that rank 0 runs with `/bin/sh -c` at certain events. Environment variables describe the event: see docs/METRICS.md."},
};

static const struct ct_key keys[] = {
	{KEY(run.dir, STR), .doc = "Run directory for logs, metrics and checkpoints. Empty: runs/<run.name>."},
	{KEY(run.name, STR), .doc = "Name of the run. Empty: the name of the config file without its extension."},
	{KEY(run.seed, INT), LEARNED, .hi = 9007199254740991, .def = "1",
	 .doc = "Seed of all random numbers: initial weights, sample order, augmentation and dropout."},
	{KEY(device, STR), .choices = WORDS("auto", "cpu", "cuda", "cuda:N", "lazy"), .def = "auto",
	 .doc = "Device to train on. auto: the GPUs if ctrain can use any, else the CPU; the log names the device and the reason. cuda: all visible GPUs, one for each rank, or the GPUs in launch.devices. cuda:N: only GPU N. GPUs are counted from 0, and those that CUDA_VISIBLE_DEVICES hides are not counted. lazy: a device for testing ctrain itself. It uses the CPU, and executes posted work late and in random order."},
	{KEY(precision, ENUM), LEARNED, .choices = precisions, .def = "fp32",
	 .doc = "Number format of the computation. fp32: single precision. bf16: activations and convolutions use bfloat16, whereas master weights and statistics stay in fp32. The processor must support bfloat16. fp16: like bf16, but with half precision and dynamic loss scaling. tf32: fp32, but the inputs of matrix products are rounded to a 10-bit mantissa. fp16 and tf32 work only on GPUs, and fp16 not with launch.pipeline."},

	{KEY(launch.procs, INT), .flags = CT_KEY_AUTO | CT_KEY_HIDE_UNSET, .lo = 1, .hi = 1024, .def = "auto",
	 .doc = "Number of processes (ranks) on this node. auto: one for each GPU. If launch.pipeline is above 1, it must divide the number of ranks, so a few GPUs may stay idle. Without GPUs, auto is launch.pipeline if this is above 1. Otherwise, it is 2, or 1 if there is only one CPU."},
	{KEY(launch.procs_list, STR), .example = "8,2", ADVANCED, .flags = CT_KEY_HIDE_UNSET,
	 .doc = "Number of processes on each node, if the nodes differ; for example \"8,2\". It replaces launch.procs."},
	{KEY(launch.nodes, INT), .flags = CT_KEY_RANGE, .lo = 1, .hi = 4096, .def = "1",
	 .doc = "Number of nodes (hosts). Start ctrain once on each of them. With a range such as 2..4, the job starts with at least 2 nodes, continues with the remaining nodes when one is lost, and adds new nodes at a checkpoint, up to 4 in total. This requires launch.restarts and batch.global; train.accumulate adapts to the number of ranks. See docs/DISTRIBUTED.md."},
	{KEY(launch.node_rank, INT), .hi = 4095, .def = "0", .env = "NODE_RANK",
	 .doc = "Index of this node, starting at 0. With a single node, NODE_RANK is ignored."},
	{KEY(launch.master_addr, STR), .example = "10.0.0.1", .env = "MASTER_ADDR",
	 .doc = "Host name or address of node 0. Required if there are several nodes."},
	{KEY(launch.master_port, INT), .hi = 65535, .def = "0", .env = "MASTER_PORT",
	 .doc = "TCP port on node 0. 0: with one node, any free port; with several nodes, the first port of dist.port_range, or 29400 if this key is empty."},
	{KEY(launch.restarts, INT), .hi = 1000, .def = "0",
	 .doc = "How many times ctrain starts the ranks again after a rank has been lost. They continue from the newest checkpoint. The job ends if the error would occur again, or if the same rank fails again and again. With several nodes, use the same value on all of them. See docs/DISTRIBUTED.md."},
	{KEY(launch.join_wait, SECONDS), ADVANCED, .hi = 86400, .def = "15",
	 .doc = "How long node 0 waits for more nodes when at least MIN of them have joined, at the start and after a failure. This applies only if launch.nodes is MIN..MAX."},
	{KEY(launch.init, STR),
	 .doc = "URL of the rendezvous, through which the ranks find each other: env://, tcp://host:port or file:///path. Empty: derived from the other keys and the environment."},
	{KEY(launch.devices, STR), .example = "0,2", ADVANCED,
	 .doc = "Indexes of the GPUs to use, for example \"0,2\". If the list has n elements, the rank with local rank r uses element r modulo n. Ranks share a GPU only if the list contains it more than once, for example \"0,0\". Empty: all visible GPUs."},
	{KEY(launch.pipeline, INT), SHARED, .lo = 1, .hi = 64, .def = "1",
	 .doc = "Number of stages into which the model is split, for models that are too large for one rank. Each rank computes one stage, so the number of ranks must be a multiple of this number. 1: every rank has the complete model. The micro-batches of train.accumulate pass through the stages one after the other, so use at least 4 times as many micro-batches as stages. See docs/DISTRIBUTED.md."},
	{KEY(launch.threads, INT), .flags = CT_KEY_AUTO, .lo = 1, .hi = 1024, .def = "auto",
	 .doc = "Number of compute threads of each rank. auto: the number of CPUs that this job may use, divided by the number of ranks on the host. Under Slurm, it is the number of CPUs of the task (--cpus-per-task). If this is 4 or more, and loading includes decoding, warping or color changes, auto reserves one eighth of the CPUs for loader threads."},
	{KEY(launch.requeue, BOOL), .def = "true",
	 .doc = "Requeue the Slurm batch job (scontrol requeue) after the run has saved a checkpoint and stopped because of a time limit, a signal or a preemption. The job then starts again and resumes. It is not requeued if it was cancelled or was submitted with --no-requeue. See docs/SLURM.md."},
	{KEY(launch.stop_before, INT), .flags = CT_KEY_AUTO, .hi = 86400, .def = "auto",
	 .doc = "In a Slurm job, the run saves a checkpoint and stops this number of seconds before the time limit of the job. auto: a tenth of the time that remains when the run starts, but at most 120. 0: do not stop."},

	{KEY(model.name, ENUM), .flags = CT_KEY_LEARNED | CT_KEY_REQUIRED, .choices = models,
	 .doc = "The network. mlp: linear layers with ReLU. lenet: LeNet-5. convnet: two blocks of convolution, batch norm, ReLU and pooling. resnet18 to resnet152, resnext and wide_resnet: the same networks as in torchvision. resnet20 to resnet56: small networks for CIFAR. layers: the layers listed in model.layers."},
	{KEY(model.hidden, INTS), .example = "[256, 128]", LEARNED, .lo = 1, .hi = 1048576, .max_n = 16,
	 .def = "512,256", .only = MLP, .doc = "Widths of the hidden layers. [] makes a linear classifier."},
	{KEY(model.dropout, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0", .only = MLP,
	 .doc = "Dropout: the probability that a hidden unit is set to 0 during training."},
	{KEY(model.layers, STRS), .example = "[\"flatten\", \"linear 10\"]", LEARNED, .max_n = 1024,
	 .only = "model.name=layers",
	 .doc = "The layers of the network, one string per layer; for example \"conv2d 16 kernel=5 padding=2\", \"relu\", \"linear 10\". See docs/MODELS.md."},
	{KEY(model.loss, ENUM), LEARNED, .choices = losses, .def = "auto",
	 .doc = "Loss function. auto: cross_entropy for class labels, mse for regression targets."},
	{KEY(model.label_smoothing, FLOAT), .example = "0.1", .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1,
	 .def = "0",
	 .doc = "Label smoothing: the fraction of each label that is spread over all classes. A typical value is 0.1. Applies to cross-entropy only."},
	{KEY(model.init, ENUM), LEARNED, .choices = inits, .def = "auto",
	 .doc = "Initial weights. pytorch: PyTorch's defaults. kaiming: normal distribution with variance 2 / fan-out (He et al. 2015). auto: kaiming for residual networks, as in torchvision, else pytorch."},
	{KEY(model.stem, ENUM), LEARNED, .choices = stems, .def = "auto", .only = "model.name=" RESNET_STEMS,
	 .doc = "First layers. imagenet: 7x7 convolution with stride 2, then max pooling. cifar: 3x3 convolution with stride 1, no pooling. auto: cifar if training images have at most 64x64 pixels."},
	{KEY(model.zero_gamma, BOOL), LEARNED, .def = "false", .only = "model.name=" RESNETS,
	 .doc = "Initialize the weight of the last batch norm in each residual block to 0. When training starts, each block is then the identity (Goyal et al. 2017)."},
	{KEY(model.drop_path, FLOAT),
	 .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0", .only = "model.name=" RESNETS, .doc = "Stochastic depth (Huang et al. 2016): the probability that the last residual block is skipped for a sample. The probability rises linearly from 0 for the first block to this value."},
	{KEY(model.bn, ENUM), LEARNED, .choices = bns, .def = "local",
	 .doc = "How batch norm works with several ranks. local: each rank normalizes with the statistics of its own samples, and the running statistics of rank 0 are saved. sync: all ranks normalize with the statistics of all their samples. broadcast: like local, but the running statistics of rank 0 are copied to all ranks before each step, as in PyTorch DDP."},
	{KEY(model.weights, STR), .example = "resnet18.safetensors",
	 .doc = "Pretrained weights to start from: a PyTorch state_dict saved as a .safetensors file (with torchvision's names), or a ctrain checkpoint. If the checkpoint contains EMA weights (train.ema), these are used. Empty: random initial weights. This key is ignored when a run is resumed."},
	{KEY(model.strict, BOOL), .def = "true",
	 .doc = "Require that model.weights contains exactly the tensors of the model. false: load the tensors that match and initialize the others, for example a new classification head."},
	{KEY(model.freeze, STRS), .example = "[\"conv1.*\", \"layer1.*\"]", ADDED, .max_n = 256,
	 .doc = "Parameters that training does not change, as a list of names; for example [\"conv1.*\", \"layer1.*\"]. In a name, * stands for any string. The name backbone means all parameters except those of the last layer. See docs/FINETUNING.md."},
	{KEY(model.freeze_stats, BOOL), ADDED, .def = "true",
	 .doc = "If all parameters of a batch norm are frozen (model.freeze), it uses its running statistics and does not change them, as in PyTorch with requires_grad=False and eval(). false: it uses the statistics of each batch and updates the running statistics, as in PyTorch with requires_grad=False alone."},

	{KEY(data.name, ENUM), .flags = CT_KEY_LEARNED | CT_KEY_REQUIRED, .choices = data_sets,
	 .doc = "The data set. idx: images and labels in IDX files. imagefolder: JPEG and PNG files, one directory per class. shards: JPEG and PNG files in WebDataset tar files. synthetic, synthetic_regression: random data that is generated in memory."},
	{KEY(data.dir, STR), .example = "datasets/mnist", .only = FILES,
	 .doc = "Directory of the data set. Empty: $CTRAIN_DATA/<data.name>; if CTRAIN_DATA is not set, datasets/<data.name>."},
	{KEY(data.train, STR), .only = FILES,
	 .doc = "Training data, relative to data.dir. idx: prefix of the file names. imagefolder: a directory. shards: patterns such as \"train-{000000..000999}.tar\", separated by spaces. Empty: the data set's default."},
	{PART("data.train.size", data.train_size, SIZES), .example = "[[0, 128], [10, 160], [16, 192]]", LEARNED,
	 .lo = 8, .hi = 4096, .max_n = 16, .only = ENCODED,
	 .doc = "Width and height of training images in pixels: either one number, or a list of pairs [first epoch, size], such as [[0, 128], [10, 160], [16, 192]]. Empty: 224."},
	{KEY(data.val, STR), .choices = WORDS("none"), .flags = CT_KEY_OTHERS | CT_KEY_SHARED | CT_KEY_HIDE_UNSET,
	 .doc = "Evaluation data, in the same form as data.train. Empty: the data set's default. none: no evaluation."},
	{PART("data.val.size", data.val_size, INT), SHARED, .hi = 4096, .def = "0", .only = ENCODED,
	 .doc = "Width and height of evaluation images in pixels. 0: the last size of data.train.size."},
	{PART("data.val.resize", data.val_resize, INT), SHARED, .hi = 8192, .def = "0", .only = ENCODED,
	 .doc = "Evaluation images are resized so that their short side has this many pixels, and then cropped at the center. 0: data.val.size * 256 / 224."},
	{KEY(data.val_fraction, FLOAT),
	 .example = "0.1", .flags = CT_KEY_LEARNED | CT_KEY_ADDED | CT_KEY_HIDE_UNSET | CT_KEY_OPEN_HI, .hi = 1,
	 .def = "0", .only = "data.name=imagefolder", .doc = "Fraction of the images in data.train that are used for evaluation and not for training. It replaces data.val. The images of each class are divided in this proportion. The choice of the images depends only on run.seed and the names of the images. 0: do not split."},
	{KEY(data.labels, STR), .flags = CT_KEY_HIDE_UNSET, .only = "data.name=imagefolder",
	 .doc = "CSV file with the class of each image, relative to data.dir. The images may be anywhere below data.train, or below data.dir if data.train is not set. The first line contains the names of the columns. A column with train, val or test selects the evaluation data. Empty: the directories are the classes. See OWN_IMAGES.md."},
	{PART("data.labels.image", data.labels_image, STR), .flags = CT_KEY_HIDE_UNSET, .only = "data.name=imagefolder",
	 .doc = "Name of the column with the image files; the file names may lack the suffix. Empty: ctrain looks for usual names, such as image, file or id."},
	{PART("data.labels.class", data.labels_class, STR), .flags = CT_KEY_HIDE_UNSET, .only = "data.name=imagefolder",
	 .doc = "Name of the column with the classes. Empty: ctrain looks for usual names, such as label, class or target."},
	{PART("data.labels.split", data.labels_split, STR), .flags = CT_KEY_HIDE_UNSET | CT_KEY_OTHERS,
	 .choices = WORDS("none"), .only = "data.name=imagefolder",
	 .doc = "Name of the column with train, val or test. Empty: ctrain looks for usual names, such as split or subset. none: ignore such a column."},
	{KEY(data.val_labels, STR), .flags = CT_KEY_HIDE_UNSET, .only = "data.name=imagefolder",
	 .doc = "CSV file with the class of each evaluation image, in the same form as data.labels. The images are below data.val, or below data.train if data.val is not set."},
	{KEY(data.classes_file, STR), .only = FILES,
	 .doc = "File with the class names, one per line (\"name\", or \"number wnid name\"), relative to data.dir. Empty: classes.txt in data.dir, if it exists; with data.labels, the classes in this file."},
	{KEY(data.index_dir, STR), ADVANCED, .only = "data.name=shards",
	 .doc = "Directory for the cached indexes of shards. Empty: the directory of the shards if it is writable, else $XDG_CACHE_HOME/ctrain."},
	{KEY(data.workers, INT), .flags = CT_KEY_AUTO, .hi = 256, .def = "auto",
	 .doc = "Number of loader threads of each rank. 0: load batches between steps, without threads. auto: 0 if the data set consists of small images in host memory or in GPU memory (data.on_device). If loading includes decoding, warping or color changes, auto is one eighth of the rank's CPUs, but at least 1."},
	{KEY(data.depth, INT), ADVANCED, .lo = 2, .hi = 64, .def = "4",
	 .doc = "Number of batches that the loader prepares in advance."},
	{KEY(data.on_device, ENUM), .choices = on_devices, .alias = "true=on|false=off", .def = "auto",
	 .doc = "Whether to copy the data sets to GPU memory when the run starts. The GPU then crops, flips, erases and mixes the images. The results are the same. auto: copy the data sets if they are in idx, MNIST or CIFAR format, take up at most a quarter of the free GPU memory, and need no other augmentation. on: fail if this is not possible. off: the host prepares the batches, as it always does with launch.pipeline."},
	{KEY(data.shuffle, ENUM), LEARNED, .choices = shuffles,
	 .alias = "true=global|false=none", .def = "global", .doc = "Order of the training samples in each epoch. global: a random permutation of all samples. window: shuffle the shards, and then the samples of data.shuffle_window shards at a time, so that slow disks read sequentially. none: the order in which the samples are stored. balanced: every class occurs equally often. An epoch still has as many samples as there are training samples: samples of small classes occur several times, augmented differently each time, and only a random part of the samples of large classes is used."},
	{KEY(data.shuffle_window, INT), LEARNED, .lo = 1, .hi = 1048576, .def = "16", .only = "data.shuffle=window",
	 .doc = "Number of consecutive shards whose samples are shuffled together."},
	{KEY(data.drop_last, BOOL), LEARNED, .def = "false",
	 .doc = "Drop the last batch of an epoch if it is smaller than the others."},
	{KEY(data.n_train, INT), LEARNED, .lo = 1, .hi = 4294967295, .def = "10000", .only = SYNTHETIC,
	 .doc = "Number of training samples to generate."},
	{KEY(data.n_val, INT), SHARED, .lo = 1, .hi = 4294967295, .def = "1000", .only = SYNTHETIC,
	 .doc = "Number of evaluation samples to generate."},
	{KEY(data.shape, INTS), .example = "[1, 28, 28]", LEARNED, .lo = 1, .hi = 65536, .max_n = 3,
	 .only = "data.name=idx|synthetic|synthetic_regression",
	 .doc = "Shape of a sample as [channels, height, width]. For a vector of 10 numbers, it is [10, 1, 1]. Empty: [1, 28, 28]; for idx, the shape that is stored in the files."},
	{KEY(data.classes, INT), .example = "10", .flags = CT_KEY_LEARNED | CT_KEY_AUTO, .lo = 2, .hi = 1000000,
	 .def = "auto", .only = "data.name=idx|shards|synthetic",
	 .doc = "Number of classes. auto: 10. For shards, auto is the number of names in the class list; if there is no list, it is the largest training label plus 1."},
	{KEY(data.targets, INT), LEARNED, .lo = 1, .hi = 65536, .def = "1", .only = "data.name=synthetic_regression",
	 .doc = "Number of values to predict for each sample."},
	{KEY(data.mean, FLOATS), .example = "[0.485, 0.456, 0.406]", LEARNED, .lo = -1e6, .hi = 1e6, .max_n = 4,
	 .only = IMAGES,
	 .doc = "Mean of each channel, for pixel values from 0 to 1. Empty: the default of the data set. For imagefolder and shards, this is the mean of ImageNet."},
	{KEY(data.std, FLOATS), .example = "[0.229, 0.224, 0.225]", .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1e6,
	 .max_n = 4, .only = IMAGES,
	 .doc = "Standard deviation of each channel, for pixel values from 0 to 1. Empty: the default of the data set. For imagefolder and shards, this is the standard deviation of ImageNet."},
	{KEY(data.decode, ENUM), LEARNED, .choices = decodes, .def = "exact", .only = ENCODED,
	 .doc = "How JPEG files are decoded. exact: at full size. fast: at 1/2, 1/4 or 1/8 of the size, if the decoded image is then still large enough. With fast, pixel values differ slightly."},
	{KEY(data.exif, BOOL), ADVANCED, LEARNED, .def = "false", .only = ENCODED,
	 .doc = "Rotate images according to their EXIF orientation. PyTorch's loaders do not do this."},
	{KEY(data.max_pixels, INT), ADVANCED, LEARNED, .lo = 1, .hi = 1073741824, .def = "67108864", .only = ENCODED,
	 .doc = "Maximum number of pixels in an image. A larger image is rejected before memory is allocated for it, and counts as an unreadable sample (see data.max_bad)."},
	{KEY(data.max_bad, FLOAT), .hi = 1e12, .def = "0.01", .only = ENCODED,
	 .doc = "Maximum number of unreadable samples in an epoch, over all ranks. If there are more, the run ends. A value below 1 is a fraction of the data set. Training replaces an unreadable sample with another one, and evaluation skips it. The log lists all unreadable samples."},
	{KEY(data.augment.crop_padding, INT), .example = "4", LEARNED, .hi = 64, .def = "0", .only = IMAGES,
	 .doc = "Pad each side with this many zero pixels, then take a random crop of the original size."},
	{KEY(data.augment.flip, BOOL), LEARNED, .def = "false", .only = IMAGES,
	 .doc = "Flip each training image horizontally with probability 0.5. Not suitable for digits."},
	{KEY(data.augment.degrees, FLOAT), .example = "10", LEARNED, .hi = 180, .def = "0", .only = IMAGES,
	 .doc = "Random rotation: maximum angle in degrees. The angle is drawn uniformly between minus and plus this value."},
	{KEY(data.augment.translate, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0",
	 .only = IMAGES,
	 .doc = "Random shift: maximum distance, as a fraction of the width and the height. Both shifts are drawn uniformly between minus and plus this value."},
	{KEY(data.augment.scale_min, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10, .def = "1",
	 .only = IMAGES,
	 .doc = "Random zoom: smallest factor. The factor is drawn uniformly between scale_min and scale_max."},
	{KEY(data.augment.scale_max, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10,
	 .def = "1", .only = IMAGES, .doc = "Random zoom: largest factor."},
	{KEY(data.augment.shear, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 90, .def = "0", .only = IMAGES,
	 .doc = "Random horizontal shear: maximum angle in degrees. The angle is drawn uniformly between minus and plus this value."},
	{KEY(data.augment.area, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .min_n = 2, .max_n = 2,
	 .def = "0.08,1", .only = ENCODED,
	 .doc = "Random resized crop: smallest and largest area of the crop, as fractions of the area of the image."},
	{KEY(data.augment.ratio, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 100, .min_n = 2, .max_n = 2,
	 .def = "0.75,1.3333333333333333", .only = ENCODED,
	 .doc = "Random resized crop: smallest and largest aspect ratio (width / height) of the crop."},
	{KEY(data.augment.brightness, FLOAT), LEARNED, .hi = 10, .def = "0", .only = COLOR,
	 .doc = "Brightness jitter: multiply the brightness by a random factor between 1 - value and 1 + value."},
	{KEY(data.augment.contrast, FLOAT), LEARNED, .hi = 10, .def = "0", .only = COLOR,
	 .doc = "Contrast jitter: multiply the contrast by a random factor between 1 - value and 1 + value."},
	{KEY(data.augment.saturation, FLOAT), LEARNED, .hi = 10, .def = "0", .only = COLOR,
	 .doc = "Saturation jitter: multiply the saturation by a random factor between 1 - value and 1 + value."},
	{KEY(data.augment.hue, FLOAT), LEARNED, .hi = 0.5, .def = "0", .only = COLOR,
	 .doc = "Hue jitter: rotate the hue by a random fraction of the color circle. The fraction is drawn between minus and plus this value; 0.5 is half a turn."},
	{KEY(data.augment.rand_augment, INT), .example = "2", LEARNED, .hi = 16, .def = "0", .only = COLOR,
	 .doc = "RandAugment (Cubuk et al. 2020): number of random operations on each image. A typical value is 2. 0 disables it."},
	{KEY(data.augment.rand_magnitude, INT), LEARNED, .hi = 30, .def = "9", .only = COLOR,
	 .doc = "RandAugment: the strength (magnitude) of the operations."},
	{KEY(data.augment.erasing, FLOAT), .example = "0.25", LEARNED, .hi = 1, .def = "0", .only = IMAGES,
	 .doc = "Random erasing (Zhong et al. 2020): probability that a random rectangle of an image is filled with the mean color."},
	{KEY(data.augment.mixup, FLOAT), .example = "0.2", LEARNED, .hi = 100, .def = "0", .only = IMAGES,
	 .doc = "Mixup (Zhang et al. 2018): blend pairs of images and their labels. The weight is drawn from Beta(a, a), where a is this value. A typical value is 0.2. 0 disables it."},
	{KEY(data.augment.cutmix, FLOAT), .example = "1", LEARNED, .hi = 100, .def = "0", .only = IMAGES,
	 .doc = "CutMix (Yun et al. 2019): paste a rectangle of one image into another, and mix the labels in proportion to the areas. The area is drawn from Beta(a, a), where a is this value. 0 disables it. If mixup is also enabled, one of the two is chosen at random for each pair."},

	{KEY(batch.global, INT), .example = "256", .flags = CT_KEY_SHARED | CT_KEY_HIDE_UNSET, .hi = 16777216,
	 .def = "0", .doc = "Number of samples per optimizer step, over all ranks and all accumulated batches."},
	{KEY(batch.per_rank, INT), .example = "64", .flags = CT_KEY_SHARED | CT_KEY_HIDE_UNSET, .hi = 1048576,
	 .def = "64",
	 .doc = "Number of samples in a batch on one rank. The global batch size is then batch.per_rank * ranks * train.accumulate."},
	{KEY(batch.eval, INT), SHARED, .lo = 1, .hi = 65536, .def = "256",
	 .doc = "Number of samples in an evaluation batch on one rank."},

	{KEY(optim.name, ENUM), LEARNED, .choices = optimizers, .def = "sgd",
	 .doc = "Optimizer. adam adds the weight decay to the gradient, whereas adamw decays the weights directly. lars is SGD with layer-wise trust ratios, and lamb is AdamW with them; both are intended for very large batches."},
	{KEY(optim.lr, FLOAT), .example = "0.1", .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1000, .def = "0.05",
	 .doc = "Learning rate. With schedule.name=one_cycle, this is the peak learning rate. If the key is not set, the learning rate is 0.05 for sgd and lars, and 0.001 for adam, adamw and lamb."},
	{KEY(optim.lr_factors, STRS), .example = "[\"backbone=0.1\", \"fc.*=10\"]", ADDED, .max_n = 256,
	 .doc = "Factors by which the learning rate of some parameters is multiplied, as a list of NAME=FACTOR; for example [\"backbone=0.1\", \"fc.*=10\"]. In a name, * stands for any string. The name backbone means all parameters except those of the last layer. If several entries match a parameter, the last one counts."},
	{KEY(optim.lr_rule, ENUM), LEARNED, .choices = lr_rules, .def = "none",
	 .doc = "linear: multiply optim.lr by global batch / optim.lr_base_batch. none: use optim.lr as is."},
	{KEY(optim.lr_base_batch, INT), ADVANCED, LEARNED, .lo = 1, .hi = 16777216, .def = "256",
	 .only = "optim.lr_rule=linear", .doc = "The global batch size for which optim.lr is intended."},
	{KEY(optim.momentum, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0.9",
	 .only = "optim.name=sgd|lars", .doc = "Momentum factor."},
	{KEY(optim.nesterov, BOOL), LEARNED, .def = "false", .only = "optim.name=sgd", .doc = "Use Nesterov momentum."},
	{KEY(optim.weight_decay, FLOAT), .example = "5e-4", LEARNED, .hi = 10, .def = "0",
	 .doc = "Weight decay. For sgd, adam and lars, it is an L2 penalty that is added to the gradient. For adamw and lamb, it is decoupled from the gradient."},
	{KEY(optim.decay_norm_bias, BOOL), LEARNED, .def = "true", .only = "optim.name=sgd|adam|adamw",
	 .doc = "Also apply weight decay to biases and batch-norm parameters. lars and lamb never do this."},
	{KEY(optim.beta1, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0.9",
	 .only = "optim.name=adam|adamw|lamb", .doc = "Decay rate of the running mean of gradients."},
	{KEY(optim.beta2, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0.999",
	 .only = "optim.name=adam|adamw|lamb", .doc = "Decay rate of the running mean of squared gradients."},
	{KEY(optim.eps, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .def = "1e-8",
	 .only = "optim.name=adam|adamw|lamb",
	 .doc = "Constant that is added to the denominator for numerical stability. A typical value for lamb is 1e-6."},
	{KEY(optim.trust, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .def = "0.001",
	 .only = "optim.name=lars",
	 .doc = "LARS trust coefficient (You et al. 2017): the norm of a layer's update at learning rate 1, divided by the norm of its weights."},
	{KEY(optim.clip_norm, FLOAT), .example = "1", LEARNED, .hi = 1e6, .def = "0",
	 .doc = "Scale the gradient so that its global L2 norm is at most this value. 0 disables clipping."},
	{KEY(optim.loss_scale, FLOAT), LEARNED, .lo = 1, .hi = 1e30, .def = "65536", .only = "precision=fp16",
	 .doc = "Initial value of the dynamic loss scale. If a gradient overflows, its update is skipped and the scale is halved."},
	{KEY(optim.loss_scale_interval, INT), LEARNED, .lo = 1, .hi = 16777216, .def = "2000", .only = "precision=fp16",
	 .doc = "The loss scale is doubled after this number of updates in a row without overflow."},

	{KEY(schedule.name, ENUM), LEARNED, .choices = schedules, .def = "constant", .doc = "Learning-rate schedule."},
	{KEY(schedule.warmup_epochs, FLOAT), .example = "5", .flags = CT_KEY_LEARNED | CT_KEY_HIDE_UNSET, .hi = 10000,
	 .def = "0", .doc = "Length of the linear warm-up in epochs. The schedule covers the remaining steps."},
	{KEY(schedule.warmup_steps, INT), .flags = CT_KEY_LEARNED | CT_KEY_HIDE_UNSET, .hi = 1e12, .def = "0",
	 .doc = "Length of the linear warm-up in steps. Set either this key or warmup_epochs."},
	{KEY(schedule.warmup_start, FLOAT), LEARNED, .hi = 1, .def = "0.1",
	 .doc = "Learning rate at the beginning of the warm-up, as a fraction of optim.lr."},
	{KEY(schedule.min_lr, FLOAT), LEARNED, .hi = 1000, .def = "0", .only = "schedule.name=cosine|poly|plateau",
	 .doc = "Learning rate at the end of the run. With the plateau schedule, it is the lowest learning rate."},
	{KEY(schedule.gamma, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .def = "0.1",
	 .only = "schedule.name=step|multistep|plateau",
	 .doc = "The learning rate is multiplied by this value at each drop."},
	{KEY(schedule.step_epochs, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10000, .def = "30",
	 .only = "schedule.name=step",
	 .doc = "Number of epochs between two drops, counted from the end of the warm-up."},
	{KEY(schedule.milestones, FLOATS), .example = "[30, 60, 80]", .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO,
	 .hi = 10000, .max_n = 16, .only = "schedule.name=multistep",
	 .doc = "Epochs at which the learning rate drops, in increasing order and counted from the end of the warm-up, for example [30, 60, 80]."},
	{KEY(schedule.power, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 100, .def = "1",
	 .only = "schedule.name=poly", .doc = "Exponent of the polynomial decay. 1 means linear decay."},
	{KEY(schedule.pct_start, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO | CT_KEY_OPEN_HI, .hi = 1,
	 .def = "0.3", .only = "schedule.name=one_cycle",
	 .doc = "The part of the run in which the learning rate rises, as a fraction of all steps."},
	{KEY(schedule.div_factor, FLOAT), LEARNED, .lo = 1, .hi = 1e9, .def = "25", .only = "schedule.name=one_cycle",
	 .doc = "The initial learning rate is optim.lr divided by this value."},
	{KEY(schedule.final_div_factor, FLOAT), ADVANCED, LEARNED, .lo = 1, .hi = 1e9, .def = "10000",
	 .only = "schedule.name=one_cycle", .doc = "The final learning rate is the initial one divided by this value."},

	{KEY(schedule.metric, ENUM), LEARNED, .choices = metrics, .def = "loss", .only = "schedule.name=plateau",
	 .doc = "Which result of evaluations the plateau schedule observes: the loss or the top-1 accuracy."},
	{KEY(schedule.patience, INT), LEARNED, .hi = 1000000, .def = "10", .only = "schedule.name=plateau",
	 .doc = "The learning rate drops when more than this number of evaluations in a row have brought no improvement."},
	{KEY(schedule.threshold, FLOAT), LEARNED, .hi = 1, .def = "0.0001", .only = "schedule.name=plateau", .doc = "Minimum improvement: a result counts as an improvement if it is better than the best previous result by more than this fraction of the best result."},
	{KEY(schedule.cooldown, INT), ADVANCED, LEARNED, .hi = 1000000, .def = "0", .only = "schedule.name=plateau",
	 .doc = "Number of evaluations after a drop that are not counted."},

	{KEY(train.epochs, INT), .example = "90", .flags = CT_KEY_LEARNED_TOTAL, .hi = 1000000, .def = "0",
	 .doc = "Number of passes over the training data. 0: no limit."},
	{KEY(train.max_steps, INT), .example = "10000", .flags = CT_KEY_LEARNED_TOTAL, .hi = 1e12, .def = "0",
	 .doc = "Maximum number of steps (optimizer updates). 0: no limit. The run ends after train.epochs or train.max_steps, whichever comes first."},
	{KEY(train.target_top1, FLOAT), .example = "0.99", SHARED, .hi = 1, .def = "0",
	 .doc = "End the run as soon as an evaluation reaches this top-1 accuracy (0.99 means 99 %). 0 disables this."},
	{KEY(train.early_stop.patience, INT), .example = "5", SHARED, .hi = 1000000, .def = "0",
	 .doc = "End the run after this number of evaluations in a row without an improvement. 0: do not stop early."},
	{KEY(train.early_stop.min_delta, FLOAT), SHARED, .hi = 1e6, .def = "0",
	 .doc = "Minimum improvement: a result counts as an improvement if it is better than the best previous result by more than this value."},
	{KEY(train.early_stop.metric, ENUM), SHARED, .choices = metrics, .def = "loss",
	 .doc = "Which result of evaluations decides: the loss or the top-1 accuracy (from 0 to 1)."},
	{KEY(train.eval_every, FLOAT), SHARED, .hi = 1000000, .def = "1",
	 .doc = "Number of epochs between two evaluations. 0: evaluate only at the end of the run."},
	{KEY(train.resume, STR), .choices = WORDS("auto", "never", "must"), .flags = CT_KEY_OTHERS, .def = "auto",
	 .doc = "Whether to resume an existing run. auto: continue from the newest valid checkpoint in the run directory; if there is none, start from scratch. must: fail if there is no checkpoint. never: rename the directory of an existing run and start from scratch. Any other value is the checkpoint directory to continue from."},
	{KEY(train.accumulate, INT), .example = "4", SHARED, .lo = 1, .hi = 4096, .def = "1",
	 .doc = "Gradient accumulation: number of batches whose gradients are summed before each update."},
	{KEY(train.ema, FLOAT), .example = "0.999", .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0",
	 .doc = "Decay rate of an exponential moving average (EMA) of the weights, for example 0.999. If it is not 0, evaluation uses the EMA weights. 0 disables the EMA."},
	{KEY(train.recompute, ENUM), .choices = recomputes, .def = "norms",
	 .doc = "Values that the forward pass does not store and the backward pass computes again, which saves memory. The results are the same. none: no values. norms: batch norm and ReLU between two convolutions. Activations then need about one seventh less memory, at almost no cost. blocks: everything inside residual blocks. This saves much more memory, but increases the work by about one third."},
	{KEY(train.cuda_graph, ENUM), SHARED, .choices = graphs, .def = "auto",
	 .doc = "Whether to record the work of a training step as a CUDA graph, so that a single call posts all of it in later steps. This saves CPU time and does not change the results. auto: record if the device can (cuda, and the test device lazy). on: fail if it cannot. off: do not record. ctrain never records the smaller last step of an epoch, steps of more than 8 batches (train.accumulate), and steps of a pipeline."},
	{KEY(train.graph_steps, INT), SHARED, .hi = 64, .def = "0",
	 .doc = "Number of consecutive steps in one CUDA graph, if steps are recorded (train.cuda_graph). Small models train faster with several steps. The results are the same, but the metrics of all steps in a graph are reported together. 0: ctrain chooses 8 steps if the images of a step take up at most 1 MiB on each rank and an epoch has at least 32 steps, otherwise 1."},
	{KEY(train.autotune, ENUM), .choices = autotunes, .def = "auto",
	 .doc = "Whether to measure, when training or evaluation starts, which implementation of each convolution is the fastest. This applies only to GPUs. The choices are stored in $XDG_CACHE_HOME/ctrain/plans, so that later runs make the same choices without measuring. auto: measure if this directory is writable. on: measure even if it is not; each run may then choose differently, and its results may differ in the last bits. cached: use only stored choices, and measure nothing. off: use the implementations that cuDNN's heuristics choose."},
	{KEY(train.class_weights, STRS), .example = "auto", .flags = CT_KEY_LEARNED | CT_KEY_ADDED | CT_KEY_AUTO,
	 .max_n = 1024,
	 .doc = "Factors by which the loss of each class is multiplied in training. Use them if the classes have very different sizes. The list has one number for each class, in the order of the class names. auto: the factors are inversely proportional to the number of training samples in the class. As in torch.nn.CrossEntropyLoss, the factor of a class also multiplies its share of the label smoothing. The factors are scaled so that their mean over all training samples is 1. Evaluation does not use them. Empty: all classes count the same."},
	{KEY(train.deterministic, BOOL), .def = "true",
	 .doc = "Use only operations whose results are bit-identical in every run. false: on a GPU, convolutions may also use faster algorithms that add numbers in a different order in each run. The CPU engines are always deterministic."},
	{KEY(train.engine, STR), .choices = WORDS("auto", "onednn", "ref", "cuda"), .def = "auto",
	 .doc = "Compute engine. auto: the fastest engine for the device. ref: a slow reference implementation for testing. cuda: cuDNN and ctrain's own kernels, for the device cuda."},

	{KEY(checkpoint.every_steps, INT), .example = "1000", .hi = 1e12, .def = "0",
	 .doc = "Checkpoint interval in steps. 0 disables it."},
	{KEY(checkpoint.every_epochs, FLOAT), .hi = 1000000, .def = "1",
	 .doc = "Checkpoint interval in epochs. 0 disables it."},
	{KEY(checkpoint.every_minutes, FLOAT), .example = "10", .hi = 1000000, .def = "0",
	 .doc = "Checkpoint interval in minutes. 0 disables it."},
	{KEY(checkpoint.keep_last, INT), .lo = 1, .hi = 10000, .def = "2",
	 .doc = "Number of recent checkpoints to keep. The best checkpoint is kept in addition."},
	{KEY(checkpoint.best, BOOL), .def = "true",
	 .doc = "Save a checkpoint after each evaluation whose result is the best so far."},
	{KEY(checkpoint.background, BOOL), ADVANCED, .def = "true",
	 .doc = "Copy the state in memory and write it to disk while training continues. false: training waits until each checkpoint is stored."},

	{KEY(log.every, INT), .lo = 1, .hi = 1e12, .def = "50",
	 .doc = "Interval, in steps, at which training metrics are written to metrics.jsonl."},
	{KEY(log.level, STR), .example = "warn,dist=debug", .choices = WORDS("error", "warn", "info", "debug", "trace"),
	 .flags = CT_KEY_OTHERS, .def = "info", .env = "CTRAIN_LOG",
	 .doc = "Log level. The level of a component can be set separately: \"warn,dist=debug\"."},
	{KEY(log.console, ENUM), .choices = consoles, .def = "auto",
	 .doc = "Progress output on the console. live: two lines that are updated in place. plain: a new line for each update. off: no output. auto: live on a terminal, else plain."},
	{KEY(log.report, BOOL), ADVANCED, SHARED, .def = "true",
	 .doc = "Write report.html, results.csv, results.png and the predictions of the best evaluation to the run directory at the end of the run."},
	{KEY(log.tensorboard, BOOL), ADVANCED, .def = "true",
	 .doc = "Also write TensorBoard event files to the run directory."},

	{KEY(dist.backend, STR), SHARED, .choices = WORDS("auto" CT_COMMS(CT_COMM_NAME)), .def = "auto",
	 .doc = "Communicator. self: one rank. shm: shared memory within one host. gloo: TCP. hier: shm within hosts and gloo between them. mpi: the MPI library whose mpirun has started the ranks. nccl: NVIDIA's library for GPUs, with one rank per GPU. auto: nccl if all ranks can use it; otherwise, the choice depends on the number of ranks and hosts."},
	{KEY(dist.timeout, SECONDS), .flags = CT_KEY_OPEN_LO, .hi = 86400, .def = "600",
	 .doc = "Maximum time that a rank waits for other ranks in a collective. After this time, the run fails."},
	{KEY(dist.rendezvous_timeout, SECONDS), .flags = CT_KEY_OPEN_LO, .hi = 86400, .def = "300",
	 .doc = "Maximum time that a rank waits at startup until all ranks have joined."},
	{KEY(dist.bucket_mib, MIB), .flags = CT_KEY_SHARED | CT_KEY_AUTO, .hi = 65536, .def = "0",
	 .doc = "Size of the buckets into which gradients are grouped for all-reduce. 0: 4 MiB on CPUs, 25 MiB on GPUs. auto: at the start of the run, ctrain measures all-reduces for less than 0.3 s and chooses the size. See docs/DISTRIBUTED.md."},
	{KEY(dist.first_bucket_mib, MIB), ADVANCED, .flags = CT_KEY_OPEN_LO | CT_KEY_SHARED, .hi = 65536, .def = "1",
	 .doc = "Size of the first bucket. If it is small, communication starts early."},
	{KEY(dist.reduce_dtype, ENUM), SHARED, .choices = reduce_dtypes, .def = "auto", .doc = "Element type in which the gradients of the weights of linear and convolution layers are summed over ranks. bf16 and fp16 halve the traffic, but round the gradients and their sums. Other gradients (biases, batch norms) are summed in fp32. fp16 has a small range: see docs/DISTRIBUTED.md. auto: on GPUs with precision bf16 or fp16 and at most 64 ranks, the type of the precision, because these gradients are computed in this type anyway; otherwise fp32."},
	{KEY(dist.check_weights, INT), SHARED, .hi = 1e12, .def = "1000",
	 .doc = "Interval, in steps, at which all ranks compare their weights, optimizer states, EMA weights and (with model.bn=sync) running statistics. If a rank differs, for example because of faulty memory, the run fails, and the message names the rank and the parameter. 0: off."},
	{KEY(dist.straggler_factor, FLOAT), SHARED, .hi = 1000, .def = "1.25",
	 .doc = "ctrain reports a rank as a straggler if, for three seconds, its time per step is at least this many times the median of the other ranks. Time in which it waits for other ranks is not counted. The report names the phase in which the rank loses time. 0: off. This works only on CPUs."},
	{KEY(dist.open_network, BOOL), .def = "false",
	 .doc = "Allow a run on several hosts without a shared secret. Any program that can connect to the port of node 0 can then read data of the run, join it and end it. Use this on private networks only. See docs/DISTRIBUTED.md."},
	{KEY(dist.iface, STR), .example = "eth0", ADVANCED,
	 .doc = "Network interfaces for communication between hosts: a list of names and networks, such as eth0,10.1.0.0/16. A list that begins with ^ contains the interfaces that must not be used, for example ^docker0,virbr0. gloo uses one of the addresses of these interfaces. Empty: gloo uses the interface in the environment variable GLOO_SOCKET_IFNAME, or the one through which it reaches node 0."},
	{KEY(dist.port_range, STR), .example = "30000-30100",
	 .doc = "Range of TCP ports on which ctrain listens for other hosts, for example 30000-30100. Use it if a firewall blocks other ports. The first port in the range is the default of launch.master_port. Empty: port 29400, and ports that the system chooses. NCCL and MPI choose their ports themselves: see docs/DISTRIBUTED.md."},
	{KEY(dist.run_id, STR), ADVANCED,
	 .doc = "Identifier that distinguishes runs that use the same port. It must be the same on all hosts of a run. Empty: chosen by the launcher."},

	{KEY(on.epoch_end, STR),
	 .doc = "Command to run after each epoch, when its evaluation and its checkpoint are done."},
	{KEY(on.checkpoint, STR),
	 .doc = "Command to run when a checkpoint has been written. CTRAIN_CHECKPOINT is its path."},
	{KEY(on.end, STR), .example = "./notify.sh",
	 .doc = "Command to run at the end of the run, after the report has been written, even if a signal stopped the run. CTRAIN_STATUS is the status."},
	{KEY(on.failure, STR),
	 .doc = "Command to run if the run fails. CTRAIN_MESSAGE is the error. The command is killed after 5 seconds, or after on.timeout if that is shorter."},
	{KEY(on.timeout, SECONDS), .flags = CT_KEY_OPEN_LO, .hi = 3600, .def = "60", .doc = "Maximum time that training waits for a command. With several ranks, it is at most half of dist.timeout. After this time, the command is killed. If a command fails, ctrain prints a warning, and the run continues."},
};

/* Conditions that many keys have in common. docs/CONFIG.md defines each name once. */
static const struct {
	const char *only, *name;
} groups[] = {
	{"model.name=" RESNETS, "residual networks"},
	{"model.name=" RESNET_STEMS, "ImageNet residual networks"},
	{IMAGES, "image data sets"},
	{COLOR, "data sets that can have color images"},
	{FILES, "data sets in files"},
	{ENCODED, "JPEG and PNG files"},
};

const char *ct__only_group_at(size_t i, const char **only)
{
	if (i >= CT_ARRAY_LEN(groups))
		return NULL;
	*only = groups[i].only;
	return groups[i].name;
}

_Static_assert(CT_ARRAY_LEN(keys) + CT_ARRAY_LEN(sections) <= CT__KEYS_MAX, "raise CT__KEYS_MAX");

size_t ct__key_count(void)
{
	return CT_ARRAY_LEN(keys);
}

const struct ct_key *ct__key_at(size_t i)
{
	return &keys[i];
}

bool ct__key_has_parts(const struct ct_key *k)
{
	size_t len = strlen(k->name);

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strncmp(keys[i].name, k->name, len) == 0 && keys[i].name[len] == '.')
			return true;
	}
	return false;
}

size_t ct__key_index(const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t len = dot ? (size_t)(dot - name) : 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strcmp(keys[i].name, name) == 0)
			return i;
		if (dot && strcmp(dot + 1, CT_KEY_OWN_PART) == 0 && strncmp(keys[i].name, name, len) == 0 &&
		    !keys[i].name[len] && ct__key_has_parts(&keys[i]))
			return i;
	}
	return SIZE_MAX;
}

const struct ct_key *ct__key_find(const char *name)
{
	size_t i = ct__key_index(name);

	return i == SIZE_MAX ? NULL : &keys[i];
}

const struct ct_section *ct__section_at(size_t i)
{
	return i < CT_ARRAY_LEN(sections) ? &sections[i] : NULL;
}

bool ct__section_exists(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(sections); i++) {
		if (strcmp(sections[i].name, name) == 0)
			return true;
	}
	return false;
}
