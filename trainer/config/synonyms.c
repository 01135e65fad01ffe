/* Names that PyTorch, timm, Lightning, Keras or Hydra use for settings that have another name in ctrain. Edit distance
 * cannot find these: "wd" is nearer to "lr" than to "weight_decay". docs/CONFIG.md shows these tables. */
#include <string.h>
#include <strings.h>

#include "trainer/config/config_impl.h"

#define LOGS "not available: ctrain writes metrics.jsonl and TensorBoard files to the run directory"
#define NOT_NEEDED "not needed: ctrain always does this"

/* A word without a dot matches the last part of a name in any section. */
static const struct ct_synonym synonyms[] = {
	{"wd l2 l2_reg decay", "optim.weight_decay", NULL, NULL},
	{"learning_rate base_lr init_lr lr0", "optim.lr", NULL, NULL},
	{"max_lr", "optim.lr", NULL, "schedule one_cycle rises to this learning rate"},
	{"optimizer_name", "optim.name", NULL, NULL},
	{"freeze_layers frozen frozen_layers freeze_backbone requires_grad", "model.freeze", "[backbone]", NULL},
	{"layer_decay lr_mult lr_multipliers paramwise_cfg param_groups", "optim.lr_factors", "[\"backbone=0.1\"]",
	 NULL},
	{"early_stopping early_stop_patience early_stopping_patience", "train.early_stop.patience", NULL, NULL},
	{"betas", "optim.beta1", "0.9", "the second value is optim.beta2"},
	{"grad_clip clip_grad clip_grad_norm max_grad_norm max_norm gradient_clip_val clipnorm clip", "optim.clip_norm",
	 NULL, NULL},
	{"amp mixed_precision fp16 bf16 half autocast dtype", "precision", "bf16", "or fp16 on a GPU"},
	{"init_scale fp16_init_scale", "optim.loss_scale", NULL, NULL},
	{"growth_interval loss_scale_window fp16_scale_window", "optim.loss_scale_interval", NULL, NULL},
	{"b batch_size bs per_device_batch_size micro_batch_size batch.size", "batch.per_rank", NULL,
	 "batch.global is the batch size of all ranks together"},
	{"global_batch_size total_batch_size", "batch.global", NULL, NULL},
	{"val_batch_size eval_batch_size test_batch_size validation_batch_size", "batch.eval", NULL, NULL},
	{"grad_accum accum_iter accumulate_grad_batches gradient_accumulation_steps", "train.accumulate", NULL, NULL},
	{"data.path data.root data.folder data.directory root data_dir data_path data_root", "data.dir", NULL, NULL},
	{"j nw num_workers n_workers", "data.workers", NULL, NULL},
	{"prefetch_factor prefetch", "data.depth", NULL, NULL},
	{"numa_binding numa_affinity cpu_affinity cpu_binding cpu_bind bind_to", "launch.bind", NULL, NULL},
	{"pin_memory persistent_workers channels_last", NULL, NULL, NOT_NEEDED},
	{"nb_classes n_classes num_classes", "data.classes", NULL, "most data sets know the number of their classes"},
	{"img_size image_size imgsz input_size resolution size", "data.train.size", NULL, NULL},
	{"random_crop randomcrop", "data.augment.crop_padding", "4", "the padding in pixels"},
	{"random_resized_crop randomresizedcrop", "data.augment.area", "[0.08,1]", NULL},
	{"color_jitter colour_jitter colorjitter jitter", "data.augment.brightness", "0.4",
	 "also contrast, saturation and hue"},
	{"horizontal_flip hflip fliplr random_flip random_horizontal_flip randomhorizontalflip mirror",
	 "data.augment.flip", "true", NULL},
	{"rotation random_rotation randomrotation rotate", "data.augment.degrees", NULL, NULL},
	{"reprob random_erasing randomerasing", "data.augment.erasing", NULL, NULL},
	{"aa auto_augment randaugment", "data.augment.rand_augment", "2", NULL},
	{"mixup_alpha", "data.augment.mixup", NULL, NULL},
	{"cutmix_alpha", "data.augment.cutmix", NULL, NULL},
	{"smoothing", "model.label_smoothing", NULL, NULL},
	{"class_weight weight_classes", "train.class_weights", NULL, NULL},
	{"balanced sampler weighted_sampler WeightedRandomSampler", "data.shuffle", "balanced",
	 "balanced draws all classes equally often"},
	{"val_split validation_split test_size", "data.val_fraction", NULL, NULL},
	{"labels_csv label_file csv_file annotations_file annotations csv", "data.labels", "labels.csv", NULL},
	{"x_col", "data.labels.image", NULL, NULL},
	{"y_col target_column", "data.labels.class", NULL, NULL},
	{"output_dir save_dir log_dir logdir out_dir output outdir", "run.dir", NULL, NULL},
	{"experiment exp_name experiment_name run_name", "run.name", NULL, NULL},
	{"random_seed manual_seed seed_everything", "run.seed", NULL, NULL},
	{"pretrained pretrained_path init_from", "model.weights", "FILE.safetensors", "see docs/MODELS.md"},
	{"a arch backbone architecture", "model.name", NULL, NULL},
	{"drop drop_rate", "model.dropout", NULL, NULL},
	{"drop_path_rate stochastic_depth stochastic_depth_prob", "model.drop_path", NULL, NULL},
	{"sync_bn sync_batchnorm syncbn", "model.bn", "sync", NULL},
	{"n_epochs num_epochs max_epochs nepochs", "train.epochs", NULL, NULL},
	{"eval_freq val_interval validate_every check_val_every_n_epoch", "train.eval_every", NULL, NULL},
	{"ema_decay model_ema", "train.ema", "0.999", NULL},
	{"grad_checkpointing gradient_checkpointing activation_checkpointing", "train.recompute", "blocks", NULL},
	{"resume resume_from resume_from_checkpoint ckpt_path load", "train.resume", "auto",
	 "the default: the same command continues the run"},
	{"start_epoch initial_epoch", NULL, NULL, "not needed: the same command continues the run"},
	{"compile torchcompile", NULL, NULL, NOT_NEEDED},
	{"cudnn_benchmark benchmark", "train.autotune", "on", NULL},
	{"step_size lr_step_size decay_epochs", "schedule.step_epochs", NULL, NULL},
	{"decay_rate lr_gamma", "schedule.gamma", NULL, NULL},
	{"eta_min lr_min", "schedule.min_lr", NULL, NULL},
	{"T_max lr_epochs", NULL, NULL, "not needed: the schedule ends with the run (train.epochs)"},
	{"lr_scheduler sched", "schedule.name", "cosine", NULL},
	{"warmup warmup_epoch", "schedule.warmup_epochs", NULL, NULL},
	{"warmup_iters", "schedule.warmup_steps", NULL, NULL},
	{"save_freq save_every save_period checkpoint_interval", "checkpoint.every_epochs", NULL, NULL},
	{"checkpoint_hist save_total_limit max_to_keep", "checkpoint.keep_last", NULL, NULL},
	{"save_top_k save_best save_best_only", "checkpoint.best", "true", NULL},
	{"log_interval log_freq print_freq log_every_n_steps logging_steps", "log.every", NULL, NULL},
	{"wandb project mlflow comet logger", NULL, NULL, LOGS},
	{"cpu no_cuda", "device", "cpu", NULL},
	{"gpu cuda", "device", "cuda", "launch.devices selects some of the GPUs"},
	{"accelerator", "device", NULL, NULL},
	{"num_proc nproc nproc_per_node world_size num_processes gpus", "launch.procs", NULL, NULL},
	/* ctrain always trains like DistributedDataParallel, with one process for each device. */
	{"parallel dp ddp data_parallel dataparallel distributed_data_parallel strategy", "launch.procs", "auto",
	 "ctrain starts one process for each device, and sums the gradients over all of them"},
	{"device_ids gpu_ids", "launch.devices", NULL, NULL},
	{"num_nodes", "launch.nodes", NULL, NULL},
	{"bucket_cap_mb", "dist.bucket_mib", NULL, NULL},
	{"process_group process_groups new_group", NULL, NULL,
	 "not needed: ctrain makes the groups of ranks; ctrain plan lists those of a pipeline's stages"},
	{"find_unused_parameters static_graph", NULL, NULL, "not needed: the model is known before the first step"},
};

/* Synonyms for values of keys with fixed choices. */
static const struct ct_value_synonym values[] = {
	{"device", "gpu mps xpu", "cuda"},
	{"device", "gpu:0 0", "cuda:0"},
	{"precision", "bfloat16 bf16-mixed bf16-true mixed_bfloat16", "bf16"},
	{"precision", "float16 half 16 16-mixed 16-true mixed_float16 amp", "fp16"},
	{"precision", "float32 float 32 32-true full", "fp32"},
	{"model.loss", "CrossEntropyLoss ce sparse_categorical_crossentropy categorical_crossentropy", "cross_entropy"},
	{"model.loss", "MSELoss l2 mean_squared_error", "mse"},
	{"model.init", "he kaiming_normal he_normal", "kaiming"},
	{"model.name", "simplecnn cnn", "convnet"},
	{"data.name", "fashionmnist fashion", "fashion_mnist"},
	{"data.name", "image_folder imagenet directory image_dataset_from_directory", "imagefolder"},
	{"data.name", "webdataset wds tar", "shards"},
	{"data.name", "fake FakeData random", "synthetic"},
	{"optim.name", "momentum nesterov", "sgd"},
	{"optim.name", "adamax nadam radam amsgrad fusedadam adamwschedulefree", "adamw"},
	{"schedule.name", "CosineAnnealingLR CosineAnnealingWarmRestarts CosineDecay cosine_annealing cos", "cosine"},
	{"schedule.name", "OneCycleLR onecycle", "one_cycle"},
	{"schedule.name", "MultiStepLR", "multistep"},
	{"schedule.name", "StepLR ExponentialLR ExponentialDecay", "step"},
	{"schedule.name", "PolynomialLR PolynomialDecay LinearLR linear", "poly"},
	{"schedule.name", "ConstantLR none", "constant"},
	{"schedule.name", "ReduceLROnPlateau reduce_on_plateau", "plateau"},
	{"dist.backend", "dp ddp horovod", "auto"},
	{"dist.backend", "tcp", "gloo"},
};

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *s = words; *s; s += strspn(s, " ")) {
		size_t n = strcspn(s, " ");

		if (n == len && strncasecmp(s, word, n) == 0)
			return true;
		s += n;
	}
	return false;
}

const struct ct_synonym *ct__key_synonym(const char *name)
{
	const char *dot = strrchr(name, '.');

	/* The whole name first: in "batch.size", the last part alone means another key. */
	for (size_t i = 0; i < CT_ARRAY_LEN(synonyms); i++) {
		if (has_word(synonyms[i].words, name))
			return &synonyms[i];
	}
	for (size_t i = 0; dot && i < CT_ARRAY_LEN(synonyms); i++) {
		if (has_word(synonyms[i].words, dot + 1))
			return &synonyms[i];
	}
	return NULL;
}

const char *ct__choice_synonym(const char *key, const char *text)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(values); i++) {
		if (strcmp(values[i].key, key) == 0 && has_word(values[i].words, text))
			return values[i].choice;
	}
	return NULL;
}

const struct ct_synonym *ct__synonym_at(size_t i)
{
	return i < CT_ARRAY_LEN(synonyms) ? &synonyms[i] : NULL;
}

const struct ct_value_synonym *ct__value_synonym_at(size_t i)
{
	return i < CT_ARRAY_LEN(values) ? &values[i] : NULL;
}
