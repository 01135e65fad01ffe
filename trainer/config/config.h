/* The configuration: one struct, filled through one schema table (trainer/config/schema.c) that drives parsing, range
 * checks, suggestions, `ctrain check`, `ctrain help KEY`, the resolved dump, docs/CONFIG.md and the JSON Schema.
 *
 * Precedence: command line (KEY=VALUE and launch options) > environment > file (later `base:` children win) > default.
 * If two keys exclude each other (batch.global, batch.per_rank), the key from the source with higher precedence is used and the
 * other counts as not set. In the same way, keys that belong to another model, data set, optimizer or schedule than the chosen one
 * fall back to their defaults. Both are errors within one source.
 * All problems of all sources are collected and reported together as `file:line:column: error: text`. */
#ifndef CT_TRAINER_CONFIG_CONFIG_H
#define CT_TRAINER_CONFIG_CONFIG_H

#include <stdint.h>

#include "base/mem.h"
#include "nn/optim/optim.h"
#include "nn/optim/schedule.h"
#include "trainer/config/choices.h"

#define CT_CFG_AUTO (-1)         /* the value "auto" of an integer key */
#define CT_DATA_DEFAULT_SIZE 224 /* of compressed images if data.train.size is not set */

struct ct_int_list {
	int n;
	int64_t v[16];
};
struct ct_float_list {
	int n;
	double v[16];
};
struct ct_str_list {
	int n;
	char **v; /* up to 1,024 entries */
};
/* Image sizes by epoch: `224`, or `[[0,128],[10,160]]`, rising from epoch 0. */
struct ct_size_list {
	int n;
	struct {
		int64_t epoch, size;
	} v[16];
};

/* Strings are owned and never NULL ("" = not set). */
struct ct_config {
	struct {
		char *dir;    /* runs/<name> unless set */
		char *name;   /* file name of the config without .yaml unless set */
		int64_t seed; /* 1 */
	} run;
	char *device; /* auto | cpu | cuda | lazy (for tests) */
	enum ct_precision precision;
	struct {
		int64_t procs; /* ranks per node: a number, or auto (one per GPU; without GPUs 2, or 1 if there is one CPU) */
		char *procs_list;         /* "8,2": ranks of each node, "" = same everywhere */
		int64_t nodes, node_rank; /* 1, 0 */
		char *master_addr;        /* "" = 127.0.0.1, on one node */
		int64_t master_port;      /* 0 = free port (one node); 29400 with several nodes */
		char *init;               /* "" | env:// | tcp://host:port | file:///path */
		char *devices;            /* "" = all; "0,2" */
		int64_t threads;          /* compute threads per rank: auto = CPUs / local ranks */
	} launch;
	struct {
		enum ct_cfg_model name;
		struct ct_int_list hidden; /* [512, 256] */
		double dropout;
		struct ct_str_list layers;
		enum ct_cfg_loss loss;
		double label_smoothing;
		enum ct_cfg_init init;
		enum ct_cfg_stem stem;
		bool zero_gamma;
		double drop_path;
		enum ct_cfg_bn bn;
		char *weights; /* .safetensors file or checkpoint; "": random initial weights */
		bool strict;   /* true */
	} model;
	struct {
		enum ct_cfg_data name;
		char *dir; /* $CTRAIN_DATA/<name> or datasets/<name> unless set; "" for synthetic data */
		char *train,
			*val; /* file prefixes, directories or shards; "" = the data set's default; val "none": no evaluation */
		struct ct_size_list
			train_size; /* data.train.size; n 0: 224 for compressed images, else the size of the data */
		int64_t val_size, val_resize;   /* data.val.size, data.val.resize; 0: derived from the others */
		char *classes_file, *index_dir; /* "": next to the data */
		int64_t workers;                /* loader threads per rank: auto */
		int64_t depth;                  /* batches ahead, 4 */
		enum ct_cfg_shuffle shuffle;
		int64_t shuffle_window; /* shards */
		bool drop_last;         /* false */
		enum ct_cfg_decode decode;
		bool exif;
		int64_t max_pixels;
		double max_bad;                 /* samples; below 1: fraction of the data set */
		int64_t n_train, n_val;         /* synthetic sizes */
		struct ct_int_list shape;       /* synthetic [c,h,w] */
		int64_t classes, targets;       /* classes: auto */
		struct ct_float_list mean, std; /* empty = the data set's default */
		struct {
			int64_t crop_padding;
			bool flip;
			double degrees, translate, scale_min, scale_max, shear;
			struct ct_float_list area, ratio; /* 2 each */
			double brightness, contrast, saturation, hue, erasing, mixup, cutmix;
			int64_t rand_augment, rand_magnitude;
		} augment;
	} data;
	struct {
		int64_t global, per_rank; /* exactly one of them > 0 */
		int64_t eval;             /* rows per rank of an evaluation batch, 256 */
	} batch;
	struct {
		enum ct_optim_kind name;
		double lr, momentum, weight_decay, beta1, beta2, eps, clip_norm, trust;
		bool nesterov, decay_norm_bias;
		enum ct_cfg_lr_rule lr_rule; /* linear: lr * global batch / lr_base_batch */
		int64_t lr_base_batch;       /* 256 */
	} optim;
	struct {
		enum ct_schedule_kind name;
		double warmup_epochs, warmup_start, min_lr, gamma, step_epochs, power, pct_start, div_factor,
			final_div_factor;
		int64_t warmup_steps;            /* used when > 0 */
		struct ct_float_list milestones; /* epochs */
	} schedule;
	struct {
		int64_t epochs, max_steps; /* 0 = no limit; at least one is set */
		double target_top1;        /* 0 = off; in 0..1 */
		char *resume;              /* auto | never | must | path of a checkpoint directory */
		int64_t accumulate;        /* 1 */
		double ema;                /* 0 = off */
		double eval_every;         /* epochs between evaluations, 1; 0 = only at the end */
		enum ct_recompute recompute;
		char *engine; /* auto | onednn | ref */
	} train;
	struct {
		int64_t every_steps, keep_last;     /* 0 = off; 2 */
		double every_epochs, every_minutes; /* 1, 0 */
		bool best, background;              /* true, true */
	} checkpoint;
	struct {
		int64_t every; /* steps between metrics lines, 50 */
		char *level;   /* info */
		enum ct_cfg_console console;
		bool tensorboard; /* true */
	} log;
	struct {
		char *backend;             /* auto | self | shm | gloo | hier */
		double timeout;            /* seconds a collective waits for a peer, 600 */
		double rendezvous_timeout; /* 300 */
		double bucket_mib;         /* 0 = auto: 4 on CPU, 25 on GPU */
		double first_bucket_mib;   /* 1 */
		char *iface;
		char *run_id; /* "" = made by the launcher or from run.name */
		bool open_network;
	} dist;
	void *origins; /* per key: where the value came from */
};

/* A KEY=VALUE of the command line; `origin` is what errors and `plan` show, for example "--procs" or "argument 3". */
struct ct_config_set {
	const char *key, *value, *origin;
};

/* Reads the file (with its `base:` chain), applies environment and sets, checks all. On failure the error chain holds
 * all problems, one per line, with status CT_CONFIG (also for a missing file: exit code 2). Returns owned. */
enum ct_status ct_config_load(const char *path, const struct ct_config_set *sets, size_t n_sets,
			      struct ct_config **out) CT_MUST_CHECK;
void ct_config_destroy(struct ct_config *c);
/* The name of the chosen value of a key that is an enumeration: ct_config_choice(c, "optim.name") is "sgd". A literal. */
const char *ct_config_choice(const struct ct_config *c, const char *key);

/* Where a key's value came from: "default", "environment CTRAIN_LOG", "configs/a.yaml:3:7", "--procs", or why the value
 * of a file is not used: "not set: batch.global is". Borrowed; NULL for an unknown key. */
const char *ct_config_origin(const struct ct_config *c, const char *key);
/* YAML that loads to the same config. with_origins adds the origin of each value as a comment. */
enum ct_status ct_config_dump(const struct ct_config *c, bool with_origins, struct ct_str *out) CT_MUST_CHECK;
/* "key=value" lines, in schema order, of the keys that change what is learned (not paths, logging, launch or limits). A resume
 * compares them with the checkpoint. train.epochs and train.max_steps are included only if the schedule depends on the length of
 * the run, so a run with a constant learning rate can be resumed with more epochs. */
enum ct_status ct_config_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
/* The same, plus the keys that determine which collectives are issued, and when. The ranks of a run compare them. */
enum ct_status ct_config_run_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_digest(const struct ct_config *c, char hex[65]) CT_MUST_CHECK;

/* Generated reference page (docs/CONFIG.md) and JSON Schema (docs/config.schema.json). */
enum ct_status ct_config_docs(struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_json_schema(struct ct_str *out) CT_MUST_CHECK;
/* `ctrain help optim.lr` or `optim`: appends the documentation; false if there is no such key or section. */
bool ct_config_help(const char *name, struct ct_str *out);
/* The key that is meant for certain: the name itself, what other programs call it, or the only key with this last part
 * (`lr`: optim.lr). NULL: none. */
const char *ct_config_key_meant(const char *name);
/* The same, else the key or section with the nearest name; NULL when none is near. */
const char *ct_config_key_suggest(const char *name);

#endif
