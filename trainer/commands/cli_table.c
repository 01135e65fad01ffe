/* All commands and all options: what stands here is what the parser takes and what help shows. */
#include <string.h>

#include "trainer/commands/cli_impl.h"

#define CONFIG_ARGS "CONFIG.yaml [KEY=VALUE ...]"
#define FIELD(f) offsetof(struct ct_cli, f)

static const struct ct_command commands[] = {
	{"train", NULL, CONFIG_ARGS, "train; the word may be left out: ctrain CONFIG.yaml", ct_cmd_train, CT_OPT_SETS,
	 1, 1},
	{"eval", NULL, "CONFIG.yaml|RUN_DIRECTORY [KEY=VALUE ...]",
	 "loss and accuracy of a checkpoint on the evaluation data, by one rank or, with --procs, several", ct_cmd_eval,
	 CT_OPT_SETS | CT_OPT_CKPT | CT_OPT_JSON, 1, 1},
	{"predict", NULL, "MODEL IMAGE...",
	 "what is in images: MODEL is a run folder, a checkpoint or, with --config, a .safetensors file",
	 ct_cmd_predict, CT_OPT_SETS | CT_OPT_CKPT | CT_OPT_PREDICT | CT_OPT_JSON, 2, CT_ANY_ARGS},
	{"plan", NULL, CONFIG_ARGS,
	 "what training would do and need, without training: ranks, batch, memory, buckets, config", ct_cmd_plan,
	 CT_OPT_SETS, 1, 1},
	{"check", NULL, CONFIG_ARGS, "find everything that is wrong with a configuration", ct_cmd_check, CT_OPT_SETS, 1,
	 1},
	{"config", "dump", CONFIG_ARGS, "print the resolved configuration", ct_cmd_config_dump,
	 CT_OPT_SETS | CT_OPT_ORIGINS | CT_OPT_OUT, 1, 1},
	{"config", "docs", "", "print the reference of all keys (docs/CONFIG.md)", ct_cmd_config_docs, CT_OPT_OUT, 0,
	 0},
	{"config", "schema", "", "print the JSON Schema for editors (docs/config.schema.json)", ct_cmd_config_schema,
	 CT_OPT_OUT, 0, 0},
	{"ckpt", "show", "PATH", "what a checkpoint holds", ct_cmd_ckpt_show, CT_OPT_JSON, 1, 1},
	{"ckpt", "verify", "PATH...", "check files, sizes and checksums of checkpoints", ct_cmd_ckpt_verify,
	 CT_OPT_JSON, 1, CT_MAX_ARGS},
	{"ckpt", "export", "PATH",
	 "the weights that evaluations are of (the averages of train.ema, where there are any) as one .safetensors file",
	 ct_cmd_ckpt_export, CT_OPT_OUT, 1, 1},
	{"data", "digits", "", "draw handwritten-looking digits where MNIST can't be downloaded", ct_cmd_data_digits,
	 CT_OPT_OUT | CT_OPT_DIGITS, 0, 0},
	{"data", "check", "CONFIG.yaml|PATH...",
	 "decode every sample of the data of a configuration, of shards or of image folders; report the bad ones",
	 ct_cmd_data_check, CT_OPT_SETS | CT_OPT_OUT | CT_OPT_THREADS | CT_OPT_JSON, 1, CT_MAX_ARGS},
	{"data", "pack", "SRC_DIR OUT_PATTERN",
	 "make shards (out/train-%06d.tar) of a folder with one folder of images a class; again: go on",
	 ct_cmd_data_pack, CT_OPT_PACK | CT_OPT_THREADS | CT_OPT_JSON, 2, CT_MAX_ARGS},
	{"data", "show", "CONFIG.yaml [IMAGE ...]",
	 "write training images (by number) as augmentation makes them, as one picture", ct_cmd_data_show,
	 CT_OPT_SETS | CT_OPT_SHOW | CT_OPT_OUT, 1, CT_MAX_ARGS},
	{"info", NULL, "", "devices, engines, back ends and data sets of this build and machine", ct_cmd_info,
	 CT_OPT_JSON, 0, 0},
	{"bench", "step", CONFIG_ARGS, "time of a training step of one rank and of each layer, as JSON",
	 ct_cmd_bench_step, CT_OPT_SETS | CT_OPT_STEPS, 1, 1},
	{"bench", "loader", CONFIG_ARGS, "images per second of one rank's loader alone, as JSON", ct_cmd_bench_loader,
	 CT_OPT_SETS | CT_OPT_STEPS, 1, 1},
	{"bench", "data", CONFIG_ARGS, "images per second of reading, decoding, resizing ..., alone and together",
	 ct_cmd_bench_data, CT_OPT_SETS | CT_OPT_THREADS | CT_OPT_SECONDS | CT_OPT_JSON, 1, 1},
	{"bench", "comm", CONFIG_ARGS, "bandwidth and latency of collectives over all ranks, as JSON",
	 ct_cmd_bench_comm, CT_OPT_SETS | CT_OPT_STEPS, 1, 1},
	{"help", NULL, "[COMMAND|KEY]", "explain a command, a config key (optim.lr) or a section (optim)", NULL, 0, 0,
	 2},
};

static const struct ct_option options[] = {
	{"procs nproc-per-node g gpus", "N|auto|A,B,..", CT_OPT_SETS, CT_OPTION_PROCS, "launch.procs", 0,
	 "processes (ranks) on this node; A,B,..: of each node"},
	{"nodes nnodes n", "N", CT_OPT_SETS, CT_OPTION_NODES, "launch.nodes", 0,
	 "hosts that take part; start ctrain on each"},
	{"node-rank i", "K", CT_OPT_SETS, CT_OPTION_KEY, "launch.node_rank", 0, "number of this host, from 0"},
	{"master-addr", "HOST", CT_OPT_SETS, CT_OPTION_KEY, "launch.master_addr", 0, "address of host 0"},
	{"master-port", "PORT", CT_OPT_SETS, CT_OPTION_KEY, "launch.master_port", 0, "TCP port on host 0"},
	{"init", "URL", CT_OPT_SETS, CT_OPTION_KEY, "launch.init", 0,
	 "where ranks meet: env://, tcp://host:port, file:///path"},
	{"devices", "LIST", CT_OPT_SETS, CT_OPTION_KEY, "launch.devices", 0, "GPUs to use, as in 0,2"},
	{"standalone", NULL, CT_OPT_SETS, CT_OPTION_STANDALONE, "launch.nodes", 0,
	 "one node (torchrun's word; the default)"},
	{"rdzv-endpoint", "HOST[:PORT]", CT_OPT_SETS, CT_OPTION_ENDPOINT, NULL, 0,
	 "torchrun's way to give --master-addr and --master-port"},
	{"rdzv-id", "ID", CT_OPT_SETS, CT_OPTION_KEY, "dist.run_id", 0, "keeps runs on one port apart"},
	{"rdzv-backend", "NAME", CT_OPT_SETS, CT_OPTION_BACKEND, NULL, 0, NULL},
	{"max-restarts", "N", CT_OPT_SETS, CT_OPTION_RESTARTS, NULL, 0, NULL},
	{"checkpoint", "PATH|best|last", CT_OPT_CKPT, CT_OPTION_TEXT, NULL, FIELD(checkpoint),
	 "the checkpoint (best, where there is one, else last)"},
	{"config", "CONFIG.yaml", CT_OPT_PREDICT, CT_OPTION_TEXT, NULL, FIELD(config),
	 "what the model is, where it is in no run folder"},
	{"top", "N", CT_OPT_PREDICT, CT_OPTION_TEXT, NULL, FIELD(top), "classes to name for each image (5)"},
	{"json", NULL, CT_OPT_JSON, CT_OPTION_FLAG, NULL, FIELD(json), "print JSON"},
	{"out o", "PATH", CT_OPT_OUT, CT_OPTION_TEXT, NULL, FIELD(out), "where to write"},
	{"seed", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(seed), "another set of drawings (1)"},
	{"train", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(train_count), "training images (60000)"},
	{"test", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(test_count), "test images (10000)"},
	{"force", NULL, CT_OPT_DIGITS, CT_OPTION_FLAG, NULL, FIELD(force),
	 "replace files that were not drawn by ctrain, real data included"},
	{"steps", "N", CT_OPT_STEPS, CT_OPTION_TEXT, NULL, FIELD(steps), "steps to time; of comm: rounds of each size"},
	{"threads", "N", CT_OPT_THREADS, CT_OPTION_TEXT, NULL, FIELD(threads), "threads that work (all CPUs)"},
	{"seconds", "N", CT_OPT_SECONDS, CT_OPTION_TEXT, NULL, FIELD(seconds), "how long to measure (5)"},
	{"shard-size", "N|BYTES", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(shard_size),
	 "samples of a shard (1000), or its size as in 500MB or 1GiB"},
	{"short", "PIXELS", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(short_side),
	 "make larger images smaller, to this short side (else they are copied)"},
	{"quality", "N", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(quality), "JPEG quality of those, 1..100 (90)"},
	{"seekable", NULL, CT_OPT_PACK, CT_OPTION_FLAG, NULL, FIELD(seekable),
	 "add restart markers to JPEG files: the same pixels, faster crops"},
	{"shuffle", "SEED", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(shuffle), "mix the samples over all shards"},
	{"val-map", "FILE", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(val_map),
	 "for images without class folders: lines \"FILE CLASS\", or LOC_val_solution.csv"},
	{"classes", "FILE", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(classes),
	 "list of the classes in order (classes.txt beside the shards, else the folders sorted)"},
	{"epoch", "N", CT_OPT_SHOW, CT_OPTION_TEXT, NULL, FIELD(epoch), "as they are in this epoch (0)"},
	{"count", "N", CT_OPT_SHOW, CT_OPTION_TEXT, NULL, FIELD(count), "without numbers: the first N (16)"},
	{"origins", NULL, CT_OPT_ORIGINS, CT_OPTION_FLAG, NULL, FIELD(origins), "say where each value came from"},
	{"help h", NULL, CT_OPT_ALL, CT_OPTION_HELP, NULL, 0, "this page"},
	{"version", NULL, CT_OPT_ALL, CT_OPTION_VERSION, NULL, 0, "version of ctrain"},
};

const struct ct_command *ct_command_at(size_t i)
{
	return i < CT_ARRAY_LEN(commands) ? &commands[i] : NULL;
}

const struct ct_option *ct__option_at(size_t i)
{
	return i < CT_ARRAY_LEN(options) ? &options[i] : NULL;
}

static bool same_name(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]))
			return false;
	}
	return true;
}

const struct ct_option *ct__option_find(const char *name, size_t len)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(options); i++) {
		for (const char *s = options[i].names; *s; s += strspn(s, " ")) {
			size_t n = strcspn(s, " ");

			if (n == len && same_name(s, name, n))
				return &options[i];
			s += n;
		}
	}
	return NULL;
}

const struct ct_command *ct__command_find(const char *name, const char *sub)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(commands); i++) {
		const struct ct_command *c = &commands[i];

		if (strcmp(c->name, name) == 0 && (c->sub ? sub && strcmp(c->sub, sub) == 0 : true))
			return c;
	}
	return NULL;
}

bool ct__command_has_subs(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i].name, name) == 0)
			return commands[i].sub != NULL;
	}
	return false;
}
