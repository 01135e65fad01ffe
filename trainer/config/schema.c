/* The one table of configuration keys. Columns: see struct ct_key. A new key is a field in trainer/config/config.h and a row
 * here; parsing, `ctrain check`, `ctrain help KEY`, the dump, docs/CONFIG.md and the JSON Schema follow. */
#include "trainer/config/config_impl.h"

#include <string.h>
#include <strings.h>

#define KEY(field, kind) .name = #field, .type = CT_KEY_##kind, .offset = offsetof(struct ct_config, field)
/* A key that lies below another one, which C cannot write as a member: data.train and data.train.size. */
#define PART(text, field, kind) .name = text, .type = CT_KEY_##kind, .offset = offsetof(struct ct_config, field)
#define MLP "model.name=mlp"
#define RESNET_STEMS "resnet18|resnet34|resnet50|resnet101|resnet152|resnext50_32x4d|wide_resnet50_2"
#define RESNETS RESNET_STEMS "|resnet20|resnet32|resnet44|resnet56"
#define ENCODED "data.name=imagefolder|shards"
#define IMAGES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards|synthetic"
#define COLOUR "data.name=cifar10|cifar100|imagefolder|shards|synthetic"
#define FILES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards"
#define SYNTHETIC "data.name=synthetic|synthetic_regression"
#define LEARNED .flags = CT_KEY_LEARNED
#define SHARED .flags = CT_KEY_SHARED

static const struct ct_section sections[] = {
	{"run", "What this run is called and where it writes."},
	{"launch",
	 "How many processes and where. Command-line options set the same keys: `--procs 4` is `launch.procs=4`."},
	{"model", "The network."},
	{"data",
	 "Where samples come from. `scripts/get_mnist.sh` fetches MNIST, `ctrain data digits` draws a substitute."},
	{"data.augment", "Random changes of training images, the same for any number of ranks and threads."},
	{"batch", "Rows per step: give `global` (all ranks together) or `per_rank`."},
	{"optim", "The optimizer."},
	{"schedule",
	 "How the learning rate moves. Fractions of an epoch are fine; everything is computed from the step alone."},
	{"train", "How long, and what happens on the way."},
	{"checkpoint", "When the run is saved. A run that is stopped by a signal saves first in any case."},
	{"log", "What is reported."},
	{"dist", "Communication between ranks."},
};

static const struct ct_key
	keys[] =
		{
			{KEY(run.dir, STR),
			 .doc = "Folder of the run: logs, metrics, checkpoints. Empty: runs/<run.name>."},
			{KEY(run.name, STR),
			 .doc = "Name of the run. Empty: the file name of the config without its ending."},
			{KEY(run.seed, INT), LEARNED, .hi = 9007199254740991, .def = "1",
			 .doc = "Everything random follows from it: initial weights, order of samples, augmentation, dropout."},
			{KEY(device, STR), .choices = "auto|cpu|cuda", .def = "auto",
			 .doc = "What to train on. auto: GPUs where there are any."},
			{KEY(precision, STR), LEARNED, .choices = "fp32|bf16", .def = "fp32",
			 .doc = "Number format of the computation. bf16: activations and convolutions in bfloat16, weights and statistics in fp32; where the device has it."},

			{KEY(launch.procs, INT), .flags = CT_KEY_AUTO | CT_KEY_HIDE_UNSET, .lo = 1, .hi = 1024,
			 .def = "auto",
			 .doc = "Processes (ranks) on this node. auto: one per GPU; without GPUs 2, or 1 on a single CPU."},
			{KEY(launch.procs_list, STR), .flags = CT_KEY_HIDE_UNSET,
			 .doc = "Processes of each node where they differ, as in \"8,2\"; replaces launch.procs."},
			{KEY(launch.nodes, INT), .lo = 1, .hi = 4096, .def = "1",
			 .doc = "Hosts that take part; ctrain is started once on each."},
			{KEY(launch.node_rank, INT), .hi = 4095, .def = "0", .doc = "Number of this host, from 0."},
			{KEY(launch.master_addr, STR), .doc = "Address of host 0; needed with several nodes."},
			{KEY(launch.master_port, INT), .hi = 65535, .def = "0",
			 .doc = "TCP port on host 0. 0: a free one on a single node, 29400 with several."},
			{KEY(launch.init, STR),
			 .doc = "Where ranks meet: env://, tcp://host:port or file:///path. Empty: follows from the other keys."},
			{KEY(launch.devices, STR), .doc = "GPUs to use, as in \"0,2\". Empty: all."},
			{KEY(launch.threads, INT), .flags = CT_KEY_AUTO, .lo = 1, .hi = 1024, .def = "auto",
			 .doc = "Compute threads of each rank. auto: the CPUs this job may use, divided by the ranks of the host; of four and more, an eighth is left to loader threads that decode or distort images."},

			{KEY(model.name, STR), .flags = CT_KEY_LEARNED | CT_KEY_REQUIRED,
			 .choices = "mlp|lenet|convnet|layers|" RESNETS,
			 .doc = "mlp: linear and ReLU; lenet: LeNet-5; convnet: two conv-BN-ReLU-pool blocks; resnet18 ...: as torchvision's; resnet20 to 56: the small ones for CIFAR; layers: your own list."},
			{KEY(model.hidden, INTS), LEARNED, .lo = 1, .hi = 1048576, .max_n = 16, .def = "512,256",
			 .only = MLP, .doc = "Widths of the hidden layers; [] is a linear classifier."},
			{KEY(model.dropout, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0",
			 .only = MLP, .doc = "Probability of dropping a hidden unit in training."},
			{KEY(model.layers, STRS), LEARNED, .max_n = 1024, .only = "model.name=layers",
			 .doc = "The network, a text for each layer: \"conv2d 16 kernel=5 padding=2\", \"relu\", \"linear 10\" ..."},
			{KEY(model.loss, STR), LEARNED, .choices = "auto|cross_entropy|mse", .def = "auto",
			 .doc = "auto: cross_entropy for class labels, mse for regression targets."},
			{KEY(model.label_smoothing, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1,
			 .def = "0",
			 .doc = "Share of each label that is spread over all classes; 0.1 is usual. Cross-entropy only."},
			{KEY(model.init, STR), LEARNED, .choices = "auto|pytorch|kaiming", .def = "auto",
			 .doc = "Initial weights: PyTorch's defaults, or He et al. 2015 (normal, fan out). auto: kaiming for ResNets, as torchvision does."},
			{KEY(model.stem, STR), LEARNED, .choices = "auto|imagenet|cifar", .def = "auto",
			 .only = "model.name=" RESNET_STEMS,
			 .doc = "First layers. imagenet: 7x7 convolution of stride 2 and max pool; cifar: 3x3 of stride 1, no pool. auto: cifar for training images of at most 64 pixels."},
			{KEY(model.zero_gamma, BOOL), LEARNED, .def = "false", .only = "model.name=" RESNETS,
			 .doc = "The last batch norm of each residual block starts with weight 0: blocks start as the identity (Goyal et al. 2017)."},
			{KEY(model.drop_path, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0",
			 .only = "model.name=" RESNETS,
			 .doc = "Stochastic depth: probability of leaving out the last residual block for a sample, rising from 0 at the first (Huang et al. 2016)."},
			{KEY(model.bn, STR), LEARNED, .choices = "local|sync|broadcast", .def = "local",
			 .doc = "Batch norm over ranks. local: each rank's own rows, rank 0's running statistics are saved; sync: over the rows of all ranks; broadcast: local, and rank 0's running statistics are given to all before each step, as DDP does."},
			{KEY(model.weights, STR),
			 .doc = "Start from these weights: a state_dict of PyTorch saved as .safetensors (names as torchvision's), or a checkpoint (of that the averages, where train.ema kept them). Empty: fresh ones. A run that is resumed has its own."},
			{KEY(model.strict, BOOL), .def = "true",
			 .doc = "Every tensor of model.weights must fit, and none be missing. false: take what fits and start the rest afresh, as for a new head."},

			{KEY(data.name, STR), .flags = CT_KEY_LEARNED | CT_KEY_REQUIRED,
			 .choices =
				 "mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards|synthetic|synthetic_regression",
			 .doc = "The data set. idx: any images and labels in IDX files; imagefolder: JPEG and PNG files, a folder a class; shards: the same in WebDataset tar files; synthetic: made on the spot, needs no files."},
			{KEY(data.dir, STR), .only = FILES,
			 .doc = "Folder of the files. Empty: $CTRAIN_DATA/<data.name>, without that variable datasets/<data.name>."},
			{KEY(data.train, STR), .only = FILES,
			 .doc = "Training data below data.dir. idx: prefix of the files; imagefolder: a folder; shards: \"train-{000000..000999}.tar\", several with blanks between. Empty: the data set's own."},
			{PART("data.train.size", data.train_size, SIZES), LEARNED, .lo = 8, .hi = 4096, .max_n = 16,
			 .only = ENCODED,
			 .doc = "Training images become so many pixels wide and high; by epoch: [[0, 128], [10, 160], [16, 192]]. Empty: 224."},
			{KEY(data.val, STR), .choices = "none", .flags = CT_KEY_OTHERS | CT_KEY_SHARED,
			 .doc = "Evaluation data, as data.train. Empty: the data set's own; none: no evaluation."},
			{PART("data.val.size", data.val_size, INT), SHARED, .hi = 4096, .def = "0", .only = ENCODED,
			 .doc = "Size of evaluation images. 0: the last one of data.train.size."},
			{PART("data.val.resize", data.val_resize, INT), SHARED, .hi = 8192, .def = "0", .only = ENCODED,
			 .doc = "Evaluation images are resized to this short side, then the middle is cut out. 0: data.val.size * 256 / 224."},
			{KEY(data.classes_file, STR), .only = FILES,
			 .doc = "Class names, one a line (\"name\", or \"number wnid name\"). Empty: classes.txt beside the data, where there is one."},
			{KEY(data.index_dir, STR), .only = "data.name=shards",
			 .doc = "Folder for the indexes of shards. Empty: beside the shards where that can be written, else $XDG_CACHE_HOME/ctrain."},
			{KEY(data.workers, INT), .flags = CT_KEY_AUTO, .hi = 256, .def = "auto",
			 .doc = "Loader threads of each rank; 0: none, load between steps. auto: none for small images in memory; some where images are decoded or distorted."},
			{KEY(data.depth, INT), .lo = 2, .hi = 64, .def = "4",
			 .doc = "Batches that the loader prepares ahead."},
			{KEY(data.shuffle, STR), LEARNED, .choices = "global|window|none",
			 .alias = "true=global|false=none", .def = "global",
			 .doc = "A new order of the training samples each epoch. global: of all; window: shards are shuffled, then the samples of data.shuffle_window shards at a time (sequential reads for slow disks); none: as they are stored."},
			{KEY(data.shuffle_window, INT), LEARNED, .lo = 1, .hi = 1048576, .def = "16",
			 .only = "data.shuffle=window", .doc = "Shards whose samples are mixed."},
			{KEY(data.drop_last, BOOL), LEARNED,
			 .def = "false", .doc = "Leave out the last, smaller batch of an epoch."},
			{KEY(data.n_train, INT), LEARNED, .lo = 1, .hi = 4294967295, .def = "10000", .only = SYNTHETIC,
			 .doc = "Training samples to make."},
			{KEY(data.n_val, INT), SHARED, .lo = 1, .hi = 4294967295, .def = "1000", .only = SYNTHETIC,
			 .doc = "Evaluation samples to make."},
			{KEY(data.shape, INTS), LEARNED, .lo = 1, .hi = 65536, .max_n = 3,
			 .only = "data.name=idx|synthetic|synthetic_regression",
			 .doc = "[channels, height, width]; a vector: [10, 1, 1]. Empty: [1, 28, 28]; idx: whatever the files hold."},
			{KEY(data.classes, INT), .flags = CT_KEY_LEARNED | CT_KEY_AUTO, .lo = 2, .hi = 1000000,
			 .def = "auto", .only = "data.name=idx|shards|synthetic",
			 .doc = "Number of classes. auto: 10; shards: as many as the class list names, without one the largest label of the training data + 1."},
			{KEY(data.targets, INT), LEARNED, .lo = 1, .hi = 65536, .def = "1",
			 .only = "data.name=synthetic_regression", .doc = "Numbers to predict for each sample."},
			{KEY(data.mean, FLOATS), LEARNED, .lo = -1e6, .hi = 1e6, .max_n = 4,
			 .only = IMAGES, .doc = "Mean of each channel, of pixels in 0..1. Empty: the data set's own."},
			{KEY(data.std, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1e6, .max_n = 4,
			 .only = IMAGES, .doc = "Standard deviation of each channel. Empty: the data set's own."},
			{KEY(data.decode, STR), LEARNED, .choices = "exact|fast", .def = "exact", .only = ENCODED,
			 .doc = "fast: large JPEG images are decoded at 1/2, 1/4 or 1/8 of their size where that is still larger than what is needed; pixels differ a little."},
			{KEY(data.exif, BOOL), LEARNED, .def = "false", .only = ENCODED,
			 .doc = "Turn images as their EXIF orientation says. PyTorch's loaders do not."},
			{KEY(data.max_pixels, INT), LEARNED, .lo = 1, .hi = 1073741824, .def = "67108864",
			 .only = ENCODED,
			 .doc = "Larger images count as bad samples, before anything is allocated for them."},
			{KEY(data.max_bad, FLOAT), .hi = 1e12, .def = "0.01", .only = ENCODED, .doc = "Samples of an epoch that may be unreadable or broken, over all ranks, before the run ends; below 1: as a fraction. In training another sample takes the place of each, in evaluation it is left out; all are named in the log."},
			{KEY(data.augment.crop_padding, INT), LEARNED, .hi = 64, .def = "0",
			 .only = IMAGES, .doc = "Pad by so many zero pixels on each side, then cut the old size at a random place."},
			{KEY(data.augment.flip, BOOL), LEARNED,
			 .def = "false", .only = IMAGES, .doc = "Mirror every other image, left to right. Not for digits."},
			{KEY(data.augment.degrees, FLOAT), LEARNED, .hi = 180, .def = "0",
			 .only = IMAGES, .doc = "Rotate by up to so many degrees, either way."},
			{KEY(data.augment.translate, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1,
			 .def = "0", .only = IMAGES, .doc = "Shift by up to this fraction of the size, both ways."},
			{KEY(data.augment.scale_min, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10,
			 .def = "1", .only = IMAGES, .doc = "Smallest zoom."},
			{KEY(data.augment.scale_max, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10,
			 .def = "1", .only = IMAGES, .doc = "Largest zoom."},
			{KEY(data.augment.shear, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 90, .def = "0",
			 .only = IMAGES, .doc = "Slant by up to so many degrees, either way."},
			{KEY(data.augment.area, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .min_n = 2,
			 .max_n = 2, .def = "0.08,1", .only = ENCODED,
			 .doc = "A random part of each image is cut out and resized: smallest and largest share of its area."},
			{KEY(data.augment.ratio, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 100,
			 .min_n = 2, .max_n = 2, .def = "0.75,1.3333333333333333", .only = ENCODED,
			 .doc = "Smallest and largest width / height of that part."},
			{KEY(data.augment.brightness, FLOAT), LEARNED, .hi = 10, .def = "0",
			 .only = COLOUR, .doc = "Brightness times a factor of 1 +- this."},
			{KEY(data.augment.contrast, FLOAT), LEARNED, .hi = 10, .def = "0",
			 .only = COLOUR, .doc = "Contrast times a factor of 1 +- this."},
			{KEY(data.augment.saturation, FLOAT), LEARNED, .hi = 10, .def = "0",
			 .only = COLOUR, .doc = "Saturation times a factor of 1 +- this."},
			{KEY(data.augment.hue, FLOAT), LEARNED, .hi = 0.5, .def = "0",
			 .only = COLOUR, .doc = "Turn the hue by up to this part of the circle, either way."},
			{KEY(data.augment.rand_augment, INT), LEARNED, .hi = 16, .def = "0",
			 .only = COLOUR, .doc = "RandAugment (Cubuk et al. 2020): so many random operations on each image; 2 is usual, 0: off."},
			{KEY(data.augment.rand_magnitude, INT), LEARNED, .hi = 30, .def = "9",
			 .only = COLOUR, .doc = "Strength of these operations."},
			{KEY(data.augment.erasing, FLOAT), LEARNED, .hi = 1, .def = "0",
			 .only = IMAGES, .doc = "Probability of painting a random rectangle over with the mean colour (Zhong et al. 2020)."},
			{KEY(data.augment.mixup, FLOAT), LEARNED, .hi = 100, .def = "0",
			 .only = IMAGES, .doc = "Blend pairs of images and of their labels, shares from Beta(this, this) (Zhang et al. 2018); 0.2 is usual, 0: off."},
			{KEY(data.augment.cutmix, FLOAT), LEARNED, .hi = 100, .def = "0",
			 .only = IMAGES, .doc = "Put a rectangle of one image into another, labels by area, shares from Beta(this, this) (Yun et al. 2019); 0: off. With mixup, each pair gets one of the two."},

			{KEY(batch.global, INT), .flags = CT_KEY_SHARED | CT_KEY_HIDE_UNSET, .hi = 16777216, .def = "0",
			 .doc = "Rows of a step over all ranks and accumulation steps."},
			{KEY(batch.per_rank, INT), .flags = CT_KEY_SHARED | CT_KEY_HIDE_UNSET, .hi = 1048576,
			 .def = "64",
			 .doc = "Rows of a batch on each rank; the global batch is this times ranks times train.accumulate."},
			{KEY(batch.eval, INT), SHARED, .lo = 1, .hi = 65536, .def = "256",
			 .doc = "Rows of an evaluation batch on each rank."},

			{KEY(optim.name, STR), LEARNED, .choices = "sgd|adamw|lars|lamb", .def = "sgd",
			 .doc = "The rule that turns gradients into updates. lars, lamb: sgd and adamw with a step for each layer by the size of its weights, for very large batches."},
			{KEY(optim.lr, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1000, .def = "0.05",
			 .doc = "Learning rate; one_cycle: its peak."},
			{KEY(optim.lr_rule, STR), LEARNED, .choices = "none|linear", .def = "none",
			 .doc = "linear: optim.lr is for optim.lr_base_batch rows and is multiplied by global batch / lr_base_batch."},
			{KEY(optim.lr_base_batch, INT), LEARNED, .lo = 1, .hi = 16777216, .def = "256",
			 .only = "optim.lr_rule=linear", .doc = "Global batch that optim.lr was chosen for."},
			{KEY(optim.momentum, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0.9",
			 .only = "optim.name=sgd|lars", .doc = "Momentum."},
			{KEY(optim.nesterov, BOOL), LEARNED, .def = "false", .only = "optim.name=sgd",
			 .doc = "Nesterov's momentum."},
			{KEY(optim.weight_decay, FLOAT), LEARNED, .hi = 10, .def = "0",
			 .doc = "sgd, lars: L2, added to the gradient; adamw, lamb: decoupled."},
			{KEY(optim.decay_norm_bias, BOOL), LEARNED, .def = "true", .only = "optim.name=sgd|adamw",
			 .doc = "Apply weight decay to biases and batch-norm parameters too. lars and lamb never do."},
			{KEY(optim.beta1, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0.9",
			 .only = "optim.name=adamw|lamb", .doc = "Decay of the mean of gradients."},
			{KEY(optim.beta2, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1,
			 .def = "0.999", .only = "optim.name=adamw|lamb",
			 .doc = "Decay of the mean of squared gradients."},
			{KEY(optim.eps, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .def = "1e-8",
			 .only = "optim.name=adamw|lamb", .doc = "Keeps the division finite; 1e-6 is usual for lamb."},
			{KEY(optim.trust, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1,
			 .def = "0.001", .only = "optim.name=lars",
			 .doc = "Step of a layer as a fraction of the size of its weights, at learning rate 1 (You et al. 2017)."},
			{KEY(optim.clip_norm, FLOAT), LEARNED, .hi = 1e6, .def = "0",
			 .doc = "Scale the gradient down to this L2 norm; 0: off."},

			{KEY(schedule.name, STR), LEARNED, .choices = "constant|step|multistep|cosine|poly|one_cycle",
			 .def = "constant", .doc = "Shape of the learning rate over the run."},
			{KEY(schedule.warmup_epochs, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_HIDE_UNSET, .hi = 10000,
			 .def = "0", .doc = "Linear rise at the start; the schedule proper runs over what remains."},
			{KEY(schedule.warmup_steps, INT), .flags = CT_KEY_LEARNED | CT_KEY_HIDE_UNSET, .hi = 1e12,
			 .def = "0", .doc = "The same in steps, instead of warmup_epochs."},
			{KEY(schedule.warmup_start, FLOAT), LEARNED, .hi = 1, .def = "0.1",
			 .doc = "Fraction of the learning rate that the warm-up starts from."},
			{KEY(schedule.min_lr, FLOAT), LEARNED, .hi = 1000, .def = "0",
			 .only = "schedule.name=cosine|poly", .doc = "Learning rate at the end."},
			{KEY(schedule.gamma, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 1, .def = "0.1",
			 .only = "schedule.name=step|multistep", .doc = "Factor of each drop."},
			{KEY(schedule.step_epochs, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10000,
			 .def = "30", .only = "schedule.name=step",
			 .doc = "Epochs between drops, counted from the end of the warm-up."},
			{KEY(schedule.milestones, FLOATS), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 10000,
			 .max_n = 16, .only = "schedule.name=multistep",
			 .doc = "Epochs at which the rate drops, rising, counted from the end of the warm-up: [30, 60, 80]."},
			{KEY(schedule.power, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO, .hi = 100, .def = "1",
			 .only = "schedule.name=poly", .doc = "Exponent; 1 is a straight line."},
			{KEY(schedule.pct_start, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_LO | CT_KEY_OPEN_HI,
			 .hi = 1, .def = "0.3", .only = "schedule.name=one_cycle",
			 .doc = "Fraction of the run that the rate rises."},
			{KEY(schedule.div_factor, FLOAT), LEARNED, .lo = 1, .hi = 1e9, .def = "25",
			 .only = "schedule.name=one_cycle", .doc = "The first rate is optim.lr divided by this."},
			{KEY(schedule.final_div_factor, FLOAT), LEARNED, .lo = 1, .hi = 1e9,
			 .def = "10000", .only = "schedule.name=one_cycle",
			 .doc = "The last rate is the first one divided by this."},

			{KEY(train.epochs, INT), .flags = CT_KEY_LEARNED_TOTAL, .hi = 1000000, .def = "0",
			 .doc = "Passes over the training data; 0: no limit."},
			{KEY(train.max_steps, INT), .flags = CT_KEY_LEARNED_TOTAL, .hi = 1e12, .def = "0",
			 .doc = "Steps, that is optimizer updates; 0: no limit. The nearer limit ends the run."},
			{KEY(train.target_top1, FLOAT), SHARED, .hi = 1, .def = "0",
			 .doc = "End as soon as an evaluation reaches this accuracy (0.99 is 99 %); 0: off."},
			{KEY(train.eval_every, FLOAT), SHARED, .hi = 1000000, .def = "1",
			 .doc = "Epochs between evaluations; 0: only at the end."},
			{KEY(train.resume, STR), .choices = "auto|never|must", .flags = CT_KEY_OTHERS, .def = "auto",
			 .doc = "auto: go on from the newest whole checkpoint of the run folder, if any; must: refuse to start afresh; or a checkpoint folder."},
			{KEY(train.accumulate, INT), SHARED, .lo = 1, .hi = 4096, .def = "1",
			 .doc = "Batches whose gradients are added up before each update."},
			{KEY(train.ema, FLOAT), .flags = CT_KEY_LEARNED | CT_KEY_OPEN_HI, .hi = 1, .def = "0",
			 .doc = "Keep a moving average of the weights, too, with this decay (0.999), and evaluate that; 0: off."},
			{KEY(train.recompute, STR), .choices = "none|norms|blocks",
			 .def = "norms", .doc = "What the backward pass computes again instead of keeping it, with the same results. norms: batch norm and ReLU between two convolutions, a seventh less memory for hardly any time; blocks: all that lies inside residual blocks, much less memory, about a third more work."},
			{KEY(train.engine, STR), .choices = "auto|onednn|ref", .def = "auto",
			 .doc = "Who computes. ref: slow plain loops, for comparison."},

			{KEY(checkpoint.every_steps, INT), .hi = 1e12, .def = "0",
			 .doc = "Save every so many steps; 0: off."},
			{KEY(checkpoint.every_epochs, FLOAT), .hi = 1000000, .def = "1",
			 .doc = "Save every so many epochs; 0: off."},
			{KEY(checkpoint.every_minutes, FLOAT), .hi = 1000000, .def = "0",
			 .doc = "Save when so many minutes have passed; 0: off."},
			{KEY(checkpoint.keep_last, INT), .lo = 1, .hi = 10000, .def = "2",
			 .doc = "Newest checkpoints to keep; the best one is kept besides."},
			{KEY(checkpoint.best, BOOL), .def = "true",
			 .doc = "Save after an evaluation that is the best so far."},

			{KEY(log.every, INT), .lo = 1, .hi = 1e12, .def = "50",
			 .doc = "Steps between lines in metrics.jsonl."},
			{KEY(log.level, STR), .choices = "error|warn|info|debug|trace", .flags = CT_KEY_OTHERS,
			 .def = "info", .env = "CTRAIN_LOG",
			 .doc = "How much is told; \"warn,dist=debug\" sets one component."},
			{KEY(log.console, STR), .choices = "auto|live|plain|off", .def = "auto",
			 .doc = "live: one line that is rewritten. auto: live on a terminal, else plain."},
			{KEY(log.tensorboard, BOOL), .def = "true",
			 .doc = "Also write TensorBoard event files into the run folder."},

			{KEY(dist.backend, STR), SHARED, .choices = "auto|self|shm|gloo|hier", .def = "auto",
			 .doc = "self: one rank; shm: shared memory of one host; gloo: TCP; hier: shm inside hosts, gloo between them."},
			{KEY(dist.timeout, SECONDS), .flags = CT_KEY_OPEN_LO, .hi = 86400, .def = "600",
			 .doc = "How long a rank waits for another before the run is ended."},
			{KEY(dist.rendezvous_timeout, SECONDS), .flags = CT_KEY_OPEN_LO, .hi = 86400, .def = "300",
			 .doc = "How long ranks wait for all to arrive."},
			{KEY(dist.bucket_mib, MIB), SHARED, .hi = 65536, .def = "0",
			 .doc = "Gradients are reduced in buckets of this size. 0: 4 MiB on CPUs, 25 MiB on GPUs."},
			{KEY(dist.first_bucket_mib, MIB), .flags = CT_KEY_OPEN_LO | CT_KEY_SHARED, .hi = 65536,
			 .def = "1", .doc = "Size of the first bucket: small, so that communication starts early."},
			{KEY(dist.iface, STR),
			 .doc = "Network interface between hosts. Empty: the one that reaches host 0."},
			{KEY(dist.run_id, STR),
			 .doc = "Keeps runs on one port apart; equal on all hosts of a run. Empty: made by the launcher."},
};

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

static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* The key with the same last part, when there is exactly one: `lr` for optim.lr. */
static const char *same_last_part(const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strcmp(last_part(keys[i].name), last_part(name)) != 0)
			continue;
		if (found)
			return NULL;
		found = keys[i].name;
	}
	return found;
}

/* Nearest among the keys and sections that stand in the same section as name. */
static const char *near_in_section(const char *name)
{
	const char *words[CT_ARRAY_LEN(keys) + CT_ARRAY_LEN(sections)], *full[CT_ARRAY_LEN(words)], *near;
	size_t n = 0, prefix = (size_t)(last_part(name) - name);

	for (size_t i = 0; i < CT_ARRAY_LEN(words); i++) {
		const char *candidate = i < CT_ARRAY_LEN(keys) ? keys[i].name : sections[i - CT_ARRAY_LEN(keys)].name;

		if (strncmp(candidate, name, prefix) != 0 || strchr(candidate + prefix, '.'))
			continue;
		words[n] = candidate + prefix;
		full[n++] = candidate;
	}
	near = ct_suggest(name + prefix, words, n);
	/* `optimizer` for optim. */
	for (size_t i = 0; !near && i < n; i++) {
		if (strlen(words[i]) >= 3 && strncasecmp(words[i], name + prefix, strlen(words[i])) == 0)
			near = words[i];
	}
	for (size_t i = 0; near && i < n; i++) {
		if (words[i] == near)
			return full[i];
	}
	return NULL;
}

void ct__key_suggest(const char *name, struct ct_str *out)
{
	const char *words[CT_ARRAY_LEN(keys)], *near = near_in_section(name);

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++)
		words[i] = keys[i].name;
	if (!near)
		near = same_last_part(name);
	if (!near)
		near = ct_suggest(name, words, CT_ARRAY_LEN(keys));
	if (near)
		ct_str_addf(out, "; did you mean \"%s\"?", near);
}

bool ct__choice_at(const char *choices, size_t i, char *buf, size_t size)
{
	size_t len;

	for (; i > 0 && choices; i--) {
		choices = strchr(choices, '|');
		choices = choices ? choices + 1 : NULL;
	}
	if (!choices)
		return false;
	len = strcspn(choices, "|");
	CT_ASSERT(len < size);
	memcpy(buf, choices, len);
	buf[len] = '\0';
	return true;
}

bool ct__choice_has(const char *choices, const char *text)
{
	char word[64];

	for (size_t i = 0; ct__choice_at(choices, i, word, sizeof(word)); i++) {
		if (strcmp(word, text) == 0)
			return true;
	}
	return false;
}

const char *ct__key_only(const struct ct_key *k, size_t *controller)
{
	const char *eq = strchr(k->only, '=');
	size_t len = (size_t)(eq - k->only);

	*controller = SIZE_MAX;
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strlen(keys[i].name) == len && strncmp(keys[i].name, k->only, len) == 0)
			*controller = i;
	}
	CT_ASSERT(*controller != SIZE_MAX);
	return eq + 1;
}
