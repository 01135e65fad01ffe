/* The configuration is one struct, described by one schema table (trainer/config/schema.c). Parsing, range checks,
 * suggestions, `ctrain check`, `ctrain help KEY`, the resolved dump, docs/CONFIG.md and the JSON Schema all use this
 * table.
 *
 * Precedence: command line (KEY=VALUE and launch options) > environment > file (later `base:` children win) > default.
 * If two keys exclude each other (batch.global and batch.per_rank), the key from the source with higher precedence is
 * used, and the other key is treated as not set. Similarly, a key that applies only to a model, data set, optimizer or
 * schedule that was not chosen is reset to its default if the choice comes from a source with higher precedence than
 * the key. Within a single source, both cases are errors. The problems of all sources are collected and reported
 * together, as `file:line:column: error: text`. */
#ifndef CT_TRAINER_CONFIG_CONFIG_H
#define CT_TRAINER_CONFIG_CONFIG_H

#include <stdint.h>

#include "base/mem.h"
#include "nn/models/model.h"
#include "nn/optim/lr_schedule.h"
#include "nn/optim/optim.h"
#include "trainer/config/choices.h"

#define CT_CFG_AUTO (-1)         /* value of a number that is set to "auto" */
#define CT_DATA_DEFAULT_SIZE 224 /* size of compressed images if data.train.size is not set */

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
/* Image sizes by epoch, such as `224` or `[[0,128],[10,160]]`. The first epoch is 0, and the epochs are in increasing
 * order. */
struct ct_size_list {
	int n;
	struct {
		int64_t epoch, size;
	} v[16];
};

/* Strings are owned and never NULL; "" means "not set". A comment that consists only of a value states the default. */
struct ct_config {
	struct {
		char *dir;    /* default: runs/<name> */
		char *name;   /* default: file name of the config without .yaml */
		int64_t seed; /* 1 */
	} run;
	char *device; /* auto | cpu | cuda | cuda:N | lazy (for tests) */
	enum ct_precision precision;
	struct {
		int64_t procs;    /* ranks per node; auto: one per GPU; without GPUs, 2 (1 if there is only one CPU) */
		char *procs_list; /* ranks on each node, such as "8,2"; "" = same on all nodes */
		int64_t nodes, min_nodes; /* 1, 0; "2..4" is stored as 4, 2 */
		int64_t node_rank;        /* 0 */
		char *master_addr;        /* "" = 127.0.0.1, if there is only one node */
		int64_t master_port;      /* 0 = a free port with one node, 29400 with several nodes */
		int64_t restarts;         /* 0 */
		double join_wait;         /* seconds; 15 */
		char *init;               /* "" | env:// | tcp://host:port | file:///path */
		char *devices;            /* "" = all; "0,2" */
		int64_t pipeline;         /* stages of the model; 1 */
		int64_t threads;          /* compute threads per rank: auto = CPUs / local ranks */
		bool requeue;             /* requeue the Slurm job when the run has been stopped; true */
		int64_t stop_before;      /* seconds before the time limit of the Slurm job; auto */
	} launch;
	struct {
		enum ct_model name;
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
		struct ct_str_list freeze;
		bool freeze_stats; /* true */
	} model;
	struct {
		enum ct_cfg_data name;
		char *dir;         /* default: $CTRAIN_DATA/<name> or datasets/<name>; "" for synthetic data */
		char *train, *val; /* file prefixes, directories or shards; "" = the data set's default; val "none": no
				      evaluation */
		char *labels, *val_labels; /* CSV files of imagefolder; "": the directories are the classes */
		char *labels_image, *labels_class,
			*labels_split;          /* data.labels.image ...: columns; "": the usual ones */
		double val_fraction;            /* part of the training images that is used for evaluation; 0 */
		struct ct_size_list train_size; /* data.train.size; if n is 0: 224 for compressed images, else the size
						   of the data */
		int64_t val_size, val_resize;   /* data.val.size, data.val.resize; 0 = derived from other keys */
		char *classes_file, *index_dir; /* "" = in the directory of the data */
		int64_t workers;                /* loader threads per rank: auto */
		int64_t depth;                  /* batches prepared in advance, 4 */
		enum ct_cfg_on_device on_device;
		enum ct_cfg_shuffle shuffle;
		int64_t shuffle_window; /* shards */
		bool drop_last;         /* false */
		enum ct_cfg_decode decode;
		bool exif;
		int64_t max_pixels;
		double max_bad;                 /* number of samples; below 1, a fraction of the data set */
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
		int64_t eval;             /* samples per rank in an evaluation batch, 256 */
	} batch;
	struct {
		enum ct_optim_kind name;
		double lr, momentum, weight_decay, beta1, beta2, eps, clip_norm, trust;
		struct ct_str_list lr_factors;
		bool nesterov, decay_norm_bias;
		enum ct_cfg_lr_rule lr_rule; /* linear: lr * global batch / lr_base_batch */
		int64_t lr_base_batch;       /* 256 */
		double loss_scale;           /* initial; 65536 */
		int64_t loss_scale_interval; /* 2000 */
	} optim;
	struct {
		enum ct_schedule_kind name;
		double warmup_epochs, warmup_start, min_lr, gamma, step_epochs, power, pct_start, div_factor,
			final_div_factor;
		int64_t warmup_steps;            /* used when > 0 */
		struct ct_float_list milestones; /* epochs */
		enum ct_cfg_metric metric;       /* plateau */
		int64_t patience, cooldown;      /* evaluations: 10, 0 */
		double threshold;                /* 1e-4 */
	} schedule;
	struct {
		int64_t epochs, max_steps; /* 0 = no limit; at least one of them is not 0 */
		double target_top1;        /* 0 to 1; 0 = off */
		struct {
			int64_t patience; /* evaluations; 0 = off */
			double min_delta;
			enum ct_cfg_metric metric;
		} early_stop;
		char *resume;       /* auto | never | must | a checkpoint directory */
		int64_t accumulate; /* 1 */
		double ema;         /* 0 = off */
		double eval_every;  /* epochs between evaluations, 1; 0 = only at the end of the run */
		enum ct_recompute recompute;
		enum ct_cfg_graph cuda_graph;
		int64_t graph_steps; /* 0 = automatic */
		enum ct_autotune autotune;
		bool deterministic;               /* true */
		struct ct_str_list class_weights; /* empty, "auto", or one number for each class */
		char *engine;                     /* auto | onednn | ref | cuda */
	} train;
	struct {
		int64_t every_steps, keep_last;     /* 0 = off; 2 */
		double every_epochs, every_minutes; /* 1, 0 */
		bool best, background;              /* true, true */
	} checkpoint;
	struct {
		int64_t every; /* steps between `step` lines in metrics.jsonl, 50 */
		char *level;   /* info */
		enum ct_cfg_console console;
		bool tensorboard; /* true */
		bool report;      /* true */
	} log;
	struct {
		char *backend;             /* auto | self | shm | gloo | hier | mpi | nccl */
		double timeout;            /* maximum time in seconds for which a collective waits for a peer, 600 */
		double rendezvous_timeout; /* 300 */
		double bucket_mib;         /* 0: a fixed size (ct_plan_bucket_bytes); or CT_CFG_AUTO */
		double first_bucket_mib;   /* 1 */
		double straggler_factor;   /* 1.25; 0 = off */
		int64_t check_weights;     /* interval in steps, 1000; 0 = off */
		enum ct_cfg_reduce_dtype reduce_dtype;
		char *iface;
		char *port_range; /* "" = the system chooses the ports */
		char *run_id;     /* "" = chosen by the launcher */
		bool open_network;
	} dist;
	struct {
		char *epoch_end, *checkpoint, *end, *failure; /* commands; "" = none */
		double timeout;                               /* seconds, 60 */
	} on;
	/* The following fields are not keys. */
	bool ranks_are_started; /* this process is a rank of another launcher, which determines the number of ranks */
	void *origins;          /* for each key, the origin of its value */
};

/* A KEY=VALUE from the command line. Errors and `plan` show `origin`, for example "--procs" or "argument 3". */
struct ct_config_set {
	const char *key, *value, *origin;
};

/* Reads the file and its `base:` chain, applies the environment variables and `sets`, and checks all values. On
 * failure, the error message contains all problems, one per line, and the status is CT_CONFIG (exit code 2), even if a
 * file is missing. If path is NULL, there is no file. *out is owned by the caller. */
enum ct_status ct_config_load(const char *path, const struct ct_config_set *sets, size_t n_sets,
			      struct ct_config **out) CT_MUST_CHECK;
/* If name is that of an example config, such as "mnist_ddp", returns the path of the config that is installed with
 * ctrain (base/process/program.h), else NULL. ct_config_load uses it if there is no file of this name. The result is
 * owned. */
char *ct_config_example(const char *name);
/* Appends the names of the example configs that contain the word, separated by commas. */
void ct_config_examples_like(const char *word, struct ct_str *out);
/* Reads what can be read of a config for which ct_config_load has failed, so that this node can report its failure to
 * the other nodes. Other values are defaults. *out is owned by the caller. */
enum ct_status ct_config_salvage(const char *path, const struct ct_config_set *sets, size_t n_sets,
				 struct ct_config **out) CT_MUST_CHECK;
void ct_config_destroy(struct ct_config *c);
/* Called with a name and a value; "..." if the value is a list or a mapping that is not empty. */
typedef void (*ct_config_visit_fn)(void *user, const char *name, const char *value);
/* Reads a YAML file (or JSON, which is YAML) of another program, and calls `visit` for each name at its top level.
 * Fails with CT_CONFIG if it is not such a file. */
enum ct_status ct_config_read_other(const char *path, ct_config_visit_fn visit, void *user) CT_MUST_CHECK;
/* Returns the name of the chosen value of an enumeration key, for example "sgd" for "optim.name". The result is a
 * string literal. */
const char *ct_config_choice(const struct ct_config *c, const char *key);

/* Returns the origin of a key's value, such as "default", "environment CTRAIN_LOG", "configs/a.yaml:3:7" or "--procs".
 * If a value from a file is not used, the result is the reason, for example "not set, because batch.global is". The
 * result is borrowed. Returns NULL if the key is unknown. */
const char *ct_config_origin(const struct ct_config *c, const char *key);
/* Appends YAML that loads to the same config. with_origins adds the origin of each value as a comment. */
enum ct_status ct_config_dump(const struct ct_config *c, bool with_origins, struct ct_str *out) CT_MUST_CHECK;
/* The same with origins, but only of the keys that a file, the command line or the environment has set. */
enum ct_status ct_config_dump_set(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
/* Appends "key=value" lines, in schema order, for the keys that change the training result. Paths, logging, launch and
 * limits are not included. A resume compares the lines with those of the checkpoint. train.epochs and train.max_steps
 * are included only if the schedule depends on the length of the run, so a run with a constant learning rate can be
 * resumed with more epochs. */
enum ct_status ct_config_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
/* Appends the lines of ct_config_lines and, in addition, lines for the keys that determine which collectives are issued
 * and when. The ranks of a run compare these lines. */
enum ct_status ct_config_run_lines(const struct ct_config *c, struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_digest(const struct ct_config *c, char hex[65]) CT_MUST_CHECK;

/* Generate the reference page (docs/CONFIG.md) and the JSON Schema (docs/config.schema.json). */
enum ct_status ct_config_docs(struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_config_json_schema(struct ct_str *out) CT_MUST_CHECK;
/* A key of the schema, for help and completion. */
struct ct_config_key {
	const char *name, *doc;
	const char *const *choices; /* NULL-terminated array of the allowed strings; NULL: any */
	const char *other_names;    /* names in other tools, separated by spaces; NULL: none are known */
	bool boolean;
};
/* Stores key i of the schema. Returns false if i is past the end. */
bool ct_config_key_at(size_t i, struct ct_config_key *out);
/* Appends the documentation of a key or section, for `ctrain help`. Returns false if there is no such key or
 * section. */
bool ct_config_help(const char *name, struct ct_str *out);
/* What a name means that is not necessarily the name of a key. */
struct ct_key_hint {
	const char *key;   /* NULL: unknown, or ctrain has no such setting */
	const char *value; /* the given value, or one that fits the key better; can be NULL */
	const char *note;  /* more about it, or NULL */
};
/* Finds the key to which a name unambiguously refers: a key with this name, a key for which other programs use this
 * name, or the only key whose last part is this name (`lr` is optim.lr). `given` is the value that the user wrote, or
 * NULL. If key and note are NULL, the name is unknown. */
struct ct_key_hint ct_config_key_meant(const char *name, const char *given);
/* Like ct_config_key_meant, but if there is no such key, returns the key or section with the most similar name. Returns
 * NULL if no name is similar. */
const char *ct_config_key_suggest(const char *name);

#endif
