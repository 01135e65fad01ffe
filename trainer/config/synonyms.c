/* Names that PyTorch, timm, Lightning, Keras or Hydra use for settings that have another name in ctrain. Edit distance
 * cannot find these: "wd" is nearer to "lr" than to "weight_decay". */
#include <string.h>
#include <strings.h>

#include "trainer/config/config_impl.h"

/* A word without a dot matches the last part of a name in any section. Several words for the same key are separated by
 * spaces. */
static const struct {
	const char *words, *key;
} synonyms[] = {
	{"wd l2 decay", "optim.weight_decay"},
	{"learning_rate base_lr", "optim.lr"},
	{"grad_clip clip_grad clip_grad_norm max_grad_norm gradient_clip_val clip", "optim.clip_norm"},
	{"amp mixed_precision fp16 bf16 half autocast dtype", "precision"},
	{"init_scale fp16_init_scale", "optim.loss_scale"},
	{"growth_interval loss_scale_window fp16_scale_window", "optim.loss_scale_interval"},
	{"batch_size bs per_device_batch_size micro_batch_size batch.size", "batch.per_rank"},
	{"global_batch_size total_batch_size", "batch.global"},
	{"data.path data.root data.folder data.directory root data_dir data_path data_root", "data.dir"},
	{"random_crop randomcrop", "data.augment.crop_padding"},
	{"random_resized_crop randomresizedcrop", "data.augment.area"},
	{"color_jitter colour_jitter colorjitter", "data.augment.brightness"},
	{"horizontal_flip hflip random_flip random_horizontal_flip mirror", "data.augment.flip"},
	{"reprob random_erasing", "data.augment.erasing"},
	{"nb_classes n_classes num_classes", "data.classes"},
	{"img_size image_size input_size resolution", "data.train.size"},
	{"output_dir save_dir log_dir logdir out_dir output outdir", "run.dir"},
	{"experiment exp_name experiment_name run_name", "run.name"},
	{"pretrained pretrained_path init_from", "model.weights"},
	{"arch backbone architecture", "model.name"},
	{"n_epochs num_epochs max_epochs", "train.epochs"},
	{"grad_accum accum_iter accumulate_grad_batches gradient_accumulation_steps", "train.accumulate"},
	{"ema_decay model_ema", "train.ema"},
	{"grad_checkpointing gradient_checkpointing activation_checkpointing", "train.recompute"},
	{"num_proc nproc nproc_per_node world_size num_processes gpus", "launch.procs"},
	/* ctrain always trains like DistributedDataParallel, with one process for each device. */
	{"parallel dp ddp data_parallel dataparallel distributed_data_parallel strategy", "launch.procs"},
	{"device_ids gpu_ids", "launch.devices"},
};

/* Synonyms for values of keys with fixed choices. */
static const struct {
	const char *key, *text, *choice;
} values[] = {
	{"device", "gpu", "cuda"},
	{"dist.backend", "dp", "auto"},
	{"dist.backend", "ddp", "auto"},
	{"schedule.name", "CosineAnnealingLR", "cosine"},
	{"schedule.name", "OneCycleLR", "one_cycle"},
	{"schedule.name", "MultiStepLR", "step"},
	{"schedule.name", "StepLR", "step"},
	{"precision", "bfloat16", "bf16"},
	{"precision", "float16", "fp16"},
	{"precision", "half", "fp16"},
	{"precision", "float32", "fp32"},
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

const char *ct__key_synonym(const char *name)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; i < CT_ARRAY_LEN(synonyms); i++) {
		if (has_word(synonyms[i].words, name) || (dot && has_word(synonyms[i].words, dot + 1)))
			return synonyms[i].key;
	}
	return NULL;
}

const char *ct__choice_synonym(const char *key, const char *text)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(values); i++) {
		if (strcmp(values[i].key, key) == 0 && strcasecmp(values[i].text, text) == 0)
			return values[i].choice;
	}
	return NULL;
}
