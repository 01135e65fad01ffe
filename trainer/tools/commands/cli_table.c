/* All commands and all options. The parser and the help pages use these tables. */
#include <string.h>

#include "trainer/tools/cli/options.h"
#include "trainer/tools/help/help.h"

#define CONFIG_ARGS "CONFIG.yaml [KEY=VALUE ...]"
#define FIELD(f) offsetof(struct ct_cli, f)

static const struct ct_command commands[] = {
	{"train", NULL, CONFIG_ARGS,
	 "train the model of a config, or continue from its last checkpoint; `ctrain CONFIG.yaml` does the same",
	 ct_cmd_train, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_RANK | CT_OPT_NOTES, 1, 1},
	{"eval", NULL, "CONFIG.yaml|RUN_DIRECTORY [KEY=VALUE ...]",
	 "compute the loss and accuracy of a checkpoint on the evaluation data; --procs uses several ranks",
	 ct_cmd_eval, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_RANK | CT_OPT_CKPT | CT_OPT_JSON | CT_OPT_EVAL | CT_OPT_OUT,
	 1, 1},
	{"predict", NULL, "MODEL IMAGE...",
	 "classify image files, or all images in directories (-: read paths from standard input); MODEL is a run directory, a checkpoint or a .safetensors file",
	 ct_cmd_predict, CT_OPT_SETS | CT_OPT_CKPT | CT_OPT_MODEL | CT_OPT_PREDICT | CT_OPT_JSON, 2, CT_ANY_ARGS},
	{"export", NULL, "MODEL [KEY=VALUE ...]",
	 "write a trained model (its EMA weights if train.ema is set) to FILE.onnx, FILE.safetensors or FILE.py (a PyTorch module); MODEL is the same as for predict",
	 ct_cmd_export, CT_OPT_SETS | CT_OPT_CKPT | CT_OPT_MODEL | CT_OPT_OUT, 1, 1},
	{"init", NULL, "DIR",
	 "examine a directory of images, with one subdirectory per class or with labels in a CSV file, and write a commented configuration for it (DIR.yaml)",
	 ct_cmd_init, CT_OPT_INIT | CT_OPT_OUT | CT_OPT_FORCE, 1, 1},
	{"plan", NULL, CONFIG_ARGS,
	 "show what training would do and need, without training: ranks, batch sizes, time, memory, buckets, config; or predict the step time and the training time on a cluster (--simulate)",
	 ct_cmd_plan, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_SIMULATE | CT_OPT_STEPS | CT_OPT_JSON, 1, 1},
	{"check", NULL, CONFIG_ARGS,
	 "report all mistakes in a configuration (exit code 2), and missing data (exit code 3)", ct_cmd_check,
	 CT_OPT_SETS | CT_OPT_LAUNCH, 1, 1},
	{"config", "dump", CONFIG_ARGS, "print the resolved configuration", ct_cmd_config_dump,
	 CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_ORIGINS | CT_OPT_OUT, 1, 1},
	{"config", "docs", "", "print the reference page of all keys (docs/CONFIG.md)", ct_cmd_config_docs, CT_OPT_OUT,
	 0, 0},
	{"config", "schema", "", "print the JSON Schema of the configuration, for editors (docs/config.schema.json)",
	 ct_cmd_config_schema, CT_OPT_OUT, 0, 0},
	{"ckpt", "show", "PATH", "show the contents of a checkpoint", ct_cmd_ckpt_show, CT_OPT_JSON, 1, 1},
	{"ckpt", "verify", "PATH...", "verify files, sizes and checksums of checkpoints", ct_cmd_ckpt_verify,
	 CT_OPT_JSON, 1, CT_MAX_ARGS},
	{"ckpt", "export", "PATH",
	 "like ctrain export, but uses the last checkpoint of a run directory instead of the best", ct_cmd_ckpt_export,
	 CT_OPT_SETS | CT_OPT_MODEL | CT_OPT_OUT, 1, 1},
	{"data", "digits", "",
	 "generate a data set that looks like handwritten digits, for machines that cannot download MNIST",
	 ct_cmd_data_digits, CT_OPT_OUT | CT_OPT_DIGITS | CT_OPT_FORCE, 0, 0},
	{"data", "check", "CONFIG.yaml|PATH...",
	 "decode every sample of a configuration, shards or image directories, and report unreadable ones",
	 ct_cmd_data_check, CT_OPT_SETS | CT_OPT_CHECK | CT_OPT_OUT | CT_OPT_THREADS | CT_OPT_JSON, 1, CT_MAX_ARGS},
	{"data", "pack", "SRC_DIR OUT_PATTERN",
	 "pack a directory with one subdirectory of images per class into shards (out/train-%06d.tar); run again to continue",
	 ct_cmd_data_pack, CT_OPT_PACK | CT_OPT_THREADS | CT_OPT_JSON, 2, CT_MAX_ARGS},
	{"data", "stats", "CONFIG.yaml|DIR",
	 "report image sizes, images per class, mean colors, damaged files, and duplicates within and between training and evaluation data",
	 ct_cmd_data_stats, CT_OPT_SETS | CT_OPT_THREADS | CT_OPT_JSON, 1, 1},
	{"data", "show", "CONFIG.yaml [IMAGE ...]",
	 "write random training images of all classes, as the model reads them, to an image file (grid.png); IMAGE is the index of an image, and one alone is written without a label",
	 ct_cmd_data_show, CT_OPT_SETS | CT_OPT_SHOW | CT_OPT_OUT | CT_OPT_FORCE, 1, CT_MAX_ARGS},
	{"report", NULL, "RUN_DIRECTORY...",
	 "write the report of a run to RUN/report.html, or the report of several runs to one file (--out; default: report.html)",
	 ct_cmd_report, CT_OPT_OUT, 1, CT_MAX_ARGS},
	{"runs", "clean", "[DIRECTORY]",
	 "remove runs that failed before their first checkpoint, and old checkpoints of finished runs; asks for confirmation first",
	 ct_cmd_runs_clean, CT_OPT_RUNS | CT_OPT_CLEAN, 0, 1},
	{"runs", NULL, "[DIRECTORY]",
	 "list the runs in a directory (default: runs): state, best result, epochs, time, and what differs in their configs",
	 ct_cmd_runs, CT_OPT_RUNS | CT_OPT_JSON, 0, 1},
	{"watch", NULL, "RUN_DIRECTORY",
	 "show the progress of a run that was started elsewhere, until it ends; exits with the exit code of the run",
	 ct_cmd_watch, 0, 1, 1},
	{"compare", NULL, "RUN_DIRECTORY RUN_DIRECTORY",
	 "show the results of two runs side by side, and what differs in their configs; exit code 1 if configs or weights differ",
	 ct_cmd_compare, CT_OPT_JSON, 2, 2},
	{"postmortem", NULL, "RUN_DIRECTORY",
	 "print what each rank was doing when a run failed, which rank failed first, and native backtraces",
	 ct_cmd_postmortem, CT_OPT_JSON, 1, 1},
	{"info", NULL, "[RUN_DIRECTORY]",
	 "list the devices, engines, back ends and data sets that this build and machine support; --report adds what a bug report needs",
	 ct_cmd_info, CT_OPT_JSON | CT_OPT_INFO | CT_OPT_OUT | CT_OPT_NOTES, 0, 1},
	{"doctor", NULL, "[CONFIG.yaml] [KEY=VALUE ...]",
	 "check hosts, network, directories and devices before a run; start it on every node with the options of the run",
	 ct_cmd_doctor, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_JSON | CT_OPT_NOTES, 0, 1},
	{"explain", NULL, "[CODE|STATUS|CHECK]",
	 "explain an exit code, a status or a doctor check; without an argument, list all of them (docs/DOCTOR.md)",
	 ct_cmd_explain, CT_OPT_OUT, 0, 1},
	{"launch", NULL, CONFIG_ARGS,
	 "train on several hosts over ssh (--hosts a:4,b:4), merge their output, and end all of them together",
	 ct_cmd_launch, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_REMOTE | CT_OPT_NOTES, 1, 1},
	{"import", NULL, "\"LAUNCH LINE\"|FILE",
	 "translate a launch line of torchrun, python, accelerate, srun or mpirun, or a configuration file of accelerate",
	 ct_cmd_import, 0, 1, 1},
	{"bench", "step", CONFIG_ARGS,
	 "measure the time of a training step, and of its layers, on one rank; with --trace, on all ranks",
	 ct_cmd_bench_step, CT_OPT_SETS | CT_OPT_RANK | CT_OPT_STEPS | CT_OPT_TRACE | CT_OPT_JSON, 1, 1},
	{"bench", "loader", CONFIG_ARGS,
	 "measure the throughput of the loader of one rank in images per second; prints JSON", ct_cmd_bench_loader,
	 CT_OPT_SETS | CT_OPT_STEPS, 1, 1},
	{"bench", "data", CONFIG_ARGS,
	 "measure the throughput of each stage of loading (reading, decoding, resizing ...), and of all stages together",
	 ct_cmd_bench_data, CT_OPT_SETS | CT_OPT_THREADS | CT_OPT_SECONDS | CT_OPT_JSON, 1, 1},
	{"bench", "comm", CONFIG_ARGS,
	 "measure the collective operations over all ranks, and check their results; prints the columns of nccl-tests",
	 ct_cmd_bench_comm, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_RANK | CT_OPT_COMM | CT_OPT_JSON | CT_OPT_OUT, 1, 1},
	{"slurm", "status", "[JOB ...]",
	 "show the state, the run directory and the end of the log of Slurm jobs that ctrain slurm submitted",
	 ct_cmd_slurm_status, CT_OPT_JSON, 0, CT_MAX_ARGS},
	{"slurm", NULL, CONFIG_ARGS,
	 "write a Slurm batch script that trains with these options on --nodes nodes; --submit also submits it",
	 ct_cmd_slurm, CT_OPT_SETS | CT_OPT_LAUNCH | CT_OPT_SLURM | CT_OPT_OUT, 1, 1},
	{"man", NULL, "", "print the man page of ctrain, ctrain(1)", ct_cmd_man, CT_OPT_OUT, 0, 0},
	{"completion", NULL, "bash|zsh|fish", "print a script that completes commands, options and keys in a shell",
	 ct_cmd_completion, CT_OPT_OUT, 1, 1},
	{"version", NULL, "", "print the version of ctrain", NULL, 0, 0, 0},
	{"help", NULL, "[COMMAND|KEY]", "explain a command, a config key (optim.lr) or a section (optim)", NULL,
	 CT_OPT_SEARCH, 0, 2},
};

static const struct ct_option options[] = {
	{"procs nproc-per-node g gpus", "N|auto|A,B,..", CT_OPT_SETS, CT_OPTION_PROCS, "launch.procs", 0,
	 "number of processes (ranks) on this node, or on each node (A,B,..)"},
	{"nodes nnodes nnode n", "N|MIN..MAX", CT_OPT_SETS, CT_OPTION_KEY, "launch.nodes", 0,
	 "number of nodes (hosts); start ctrain on each of them"},
	{"node-rank i", "K", CT_OPT_SETS, CT_OPTION_KEY, "launch.node_rank", 0, "index of this node, starting at 0"},
	{"master-addr", "HOST", CT_OPT_SETS, CT_OPTION_KEY, "launch.master_addr", 0, "address of node 0"},
	{"master-port", "PORT", CT_OPT_SETS, CT_OPTION_KEY, "launch.master_port", 0, "TCP port on node 0"},
	{"epochs", "N", CT_OPT_SETS, CT_OPTION_KEY, "train.epochs", 0, "number of epochs"},
	{"rank", "R", CT_OPT_RANK, CT_OPTION_TEXT, NULL, FIELD(rank),
	 "rank of this process, if you start each rank yourself (also: RANK); ctrain then starts no processes"},
	{"world-size", "N", CT_OPT_RANK, CT_OPTION_TEXT, NULL, FIELD(world_size),
	 "number of ranks in all, with --rank (also: WORLD_SIZE)"},
	{"local-rank", "R", CT_OPT_RANK, CT_OPTION_TEXT, NULL, FIELD(local_rank),
	 "rank on this node, with --rank (also: LOCAL_RANK)"},
	{"init", "URL", CT_OPT_SETS, CT_OPTION_KEY, "launch.init", 0,
	 "URL of the rendezvous: env://, tcp://host:port or file:///path"},
	{"devices", "LIST", CT_OPT_SETS, CT_OPTION_KEY, "launch.devices", 0, "GPUs to use, for example 0,2"},
	{"standalone", NULL, CT_OPT_SETS, CT_OPTION_STANDALONE, "launch.nodes", 0,
	 "one node (as in torchrun; the default)"},
	{"rdzv-endpoint", "HOST[:PORT]", CT_OPT_SETS, CT_OPTION_ENDPOINT, NULL, 0,
	 "the same as --master-addr and --master-port, in the syntax of torchrun"},
	{"rdzv-id", "ID", CT_OPT_SETS, CT_OPTION_KEY, "dist.run_id", 0,
	 "identifies the run, so that ranks of different runs do not join each other"},
	{"rdzv-backend", "NAME", CT_OPT_SETS, CT_OPTION_BACKEND, NULL, 0, NULL},
	{"restarts max-restarts", "N", CT_OPT_SETS, CT_OPTION_KEY, "launch.restarts", 0,
	 "start lost ranks again up to N times, from the newest checkpoint"},
	{"checkpoint", "PATH|best|last", CT_OPT_CKPT, CT_OPTION_TEXT, NULL, FIELD(checkpoint),
	 "the checkpoint to use (default: best if it exists, else last)"},
	{"config", "CONFIG.yaml", CT_OPT_MODEL, CT_OPTION_TEXT, NULL, FIELD(config),
	 "configuration of the model; required if neither the weights nor a run directory describe it"},
	{"top", "N", CT_OPT_PREDICT, CT_OPTION_TEXT, NULL, FIELD(top),
	 "number of classes to print per image (default: 5, or 1 with --csv)"},
	{"tta", "VIEWS", CT_OPT_PREDICT, CT_OPTION_TEXT, NULL, FIELD(tta),
	 "average over views of each image: flip (its mirror image), crops (center and corners) or flip,crops"},
	{"csv", NULL, CT_OPT_PREDICT, CT_OPTION_FLAG, NULL, FIELD(csv), "print CSV: one line for each image and class"},
	{"jsonl", NULL, CT_OPT_PREDICT, CT_OPTION_FLAG, NULL, FIELD(jsonl),
	 "print one JSON object per image, on a line"},
	{"report", NULL, CT_OPT_EVAL, CT_OPTION_FLAG, NULL, FIELD(report),
	 "also write the predictions, the confusion matrix and the scores of each class to RUN/eval (or to --out), and update the report of the run"},
	{"report", NULL, CT_OPT_INFO, CT_OPTION_FLAG, NULL, FIELD(report),
	 "print a report to paste into a bug report: version, compiler, libraries, hardware, environment variables, and the settings and last log lines of RUN_DIRECTORY; secrets are removed"},
	{"json", NULL, CT_OPT_JSON, CT_OPTION_FLAG, NULL, FIELD(json), "print JSON"},
	{"out o", "PATH", CT_OPT_OUT, CT_OPTION_TEXT, NULL, FIELD(out), "output file or directory"},
	{"seed", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(seed), "seed of the generated digits (default: 1)"},
	{"train", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(train_count),
	 "number of training images (default: 60000)"},
	{"test", "N", CT_OPT_DIGITS, CT_OPTION_TEXT, NULL, FIELD(test_count), "number of test images (default: 10000)"},
	{"labels", "FILE.csv|none", CT_OPT_INIT, CT_OPTION_TEXT, NULL, FIELD(labels),
	 "CSV file with the classes of the images (default: found in or beside DIR); none: the directories are the classes"},
	{"labels", "FILE.csv|none", CT_OPT_CHECK, CT_OPTION_TEXT, NULL, FIELD(labels),
	 "check this CSV file with the classes of the images in the directory PATH, and the images that it lists; none: check all images and do not warn about such files"},
	{"force", NULL, CT_OPT_FORCE, CT_OPTION_FLAG, NULL, FIELD(force),
	 "replace existing files; data digits then also replaces files that ctrain did not generate, such as real data"},
	{"steps", "N", CT_OPT_STEPS, CT_OPTION_TEXT, NULL, FIELD(steps), "number of steps to measure"},
	{"trace", "FILE", CT_OPT_TRACE, CT_OPTION_TEXT, NULL, FIELD(trace),
	 "write a trace of 3 steps of all ranks, as JSON for ui.perfetto.dev or chrome://tracing"},
	{"hosts", "HOST[:N],..", CT_OPT_REMOTE, CT_OPTION_TEXT, NULL, FIELD(hosts),
	 "hosts in the order of their ranks, with the number of ranks on each; HOST may be USER@HOST"},
	{"ssh", "COMMAND", CT_OPT_REMOTE, CT_OPTION_TEXT, NULL, FIELD(ssh),
	 "command that connects to a host (default: ssh), for example \"ssh -p 2222\""},
	{"op", "NAME,..", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(op),
	 "operations to measure, for example allreduce,sendrecv (default: all)"},
	{"type d datatype", "NAME", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(type),
	 "element type: float, double, half, bfloat16, int32, int64 or uint8 (default: float)"},
	{"redop", "NAME", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(redop),
	 "reduction: sum, prod, min, max or avg (default: sum)"},
	{"root r", "RANK", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(root),
	 "root rank of operations that have one (default: 0)"},
	{"min b minbytes", "BYTES", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(min),
	 "smallest size, for example 8 or 512K (default: 4K)"},
	{"max e maxbytes", "BYTES", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(max),
	 "largest size, for example 32M or 1G (default: 64M)"},
	{"factor f stepfactor", "N", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(factor),
	 "ratio of consecutive sizes (default: 4)"},
	{"step stepbytes", "BYTES", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(step),
	 "difference between consecutive sizes, instead of --factor"},
	{"iters", "N", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(iters),
	 "timed iterations per size (default: as many as 200 ms allow, 5 to 2000)"},
	{"warmup w warmup-iters", "N", CT_OPT_COMM, CT_OPTION_TEXT, NULL, FIELD(warmup),
	 "iterations that are not timed (default: 5)"},
	{"assume", "train=N,..", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(assume),
	 "plan without the data, for the given numbers of training samples, evaluation samples and classes, and the given image size, for example train=50000,val=10000,classes=10,size=224"},
	{"simulate", "NxM,..", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(simulate),
	 "predict the step time and the training time on N nodes with M devices each; a range such as 1x8..128x8 doubles a number"},
	{"step-ms", "F,B,U", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(step_ms),
	 "times of forward pass, backward pass and update in ms (default: measure them here)"},
	{"no-measure", NULL, CT_OPT_SIMULATE, CT_OPTION_FLAG, NULL, FIELD(no_measure),
	 "do not measure the time of a step, so that the time of the training is not shown"},
	{"link-intra", "LINK", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(link_intra),
	 "for --simulate: link within a node, a name such as nvlink4, or ALPHA_US,GBPS"},
	{"link-inter", "LINK", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(link_inter),
	 "for --simulate: link between nodes, a name and the ports per node such as ib400:8, or ALPHA_US,GBPS"},
	{"allreduce", "NAME", CT_OPT_SIMULATE, CT_OPTION_TEXT, NULL, FIELD(allreduce),
	 "for --simulate: ring, tree, fastest (of both) or hier (default: as dist.backend does)"},
	{"threads", "N", CT_OPT_THREADS, CT_OPTION_TEXT, NULL, FIELD(threads),
	 "number of threads (default: one for each CPU)"},
	{"seconds", "N", CT_OPT_SECONDS, CT_OPTION_TEXT, NULL, FIELD(seconds),
	 "duration of the measurement in seconds (default: 5)"},
	{"shard-size", "N|BYTES", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(shard_size),
	 "number of samples per shard, or size of a shard such as 500MB or 1GiB (default: 1000 samples)"},
	{"short", "PIXELS", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(short_side),
	 "shrink larger images so that their short side has this length (default: copy all images)"},
	{"quality", "N", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(quality),
	 "JPEG quality of shrunk images, from 1 to 100 (default: 90)"},
	{"seekable", NULL, CT_OPT_PACK, CT_OPTION_FLAG, NULL, FIELD(seekable),
	 "add restart markers to JPEG files, which makes random crops faster and does not change the pixels"},
	{"shuffle", "SEED", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(shuffle), "shuffle the samples over all shards"},
	{"val-map", "FILE", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(val_map),
	 "file with the class of each image, if there are no class directories: lines \"FILE CLASS\", or LOC_val_solution.csv"},
	{"classes", "FILE", CT_OPT_PACK, CT_OPTION_TEXT, NULL, FIELD(classes),
	 "file that lists the classes in order (default: classes.txt next to the shards, else the sorted directory names)"},
	{"epoch", "N", CT_OPT_SHOW, CT_OPTION_TEXT, NULL, FIELD(epoch),
	 "show the augmentation of this epoch, counted from 0 (0)"},
	{"before-after", NULL, CT_OPT_SHOW, CT_OPTION_FLAG, NULL, FIELD(before_after),
	 "show each image as it is stored beside the image that the model reads"},
	{"mixup", NULL, CT_OPT_SHOW, CT_OPTION_FLAG, NULL, FIELD(mixup),
	 "show images of a batch after mixup and CutMix, with both labels and their weights"},
	{"seed", "N", CT_OPT_SHOW, CT_OPTION_TEXT, NULL, FIELD(seed),
	 "choose other random images (default: run.seed); does not change their augmentation"},
	{"count", "N", CT_OPT_SHOW, CT_OPTION_TEXT, NULL, FIELD(count),
	 "show this many images (default: four rows, with one column or more for each class; 32 with --mixup)"},
	{"gpus-per-node", "N", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(gpus),
	 "GPUs on each node; without --procs, also the number of ranks"},
	{"cpus-per-task", "N", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(cpus), "number of CPUs for each rank"},
	{"time", "TIME", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(time),
	 "time limit, such as 30 (minutes), 12:00:00 or 2-00"},
	{"partition", "NAME", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(partition), "partition of the cluster"},
	{"account", "NAME", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(account), "account to charge"},
	{"mem", "SIZE", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(mem), "memory on each node, for example 32G"},
	{"array", "INDEXES", CT_OPT_SLURM, CT_OPTION_TEXT, NULL, FIELD(array),
	 "job array, for example 0-4: one run for each index"},
	{"submit", NULL, CT_OPT_SLURM, CT_OPTION_FLAG, NULL, FIELD(submit), "submit the script with sbatch"},
	{"origins", NULL, CT_OPT_ORIGINS, CT_OPTION_FLAG, NULL, FIELD(origins), "show the origin of each value"},
	{"filter", "CONDITIONS", CT_OPT_RUNS, CT_OPTION_TEXT, NULL, FIELD(filter),
	 "show only runs that meet all conditions, for example 'state=done,top1>=0.9,optim.lr=0.1'"},
	{"sort", "FIELD", CT_OPT_RUNS, CT_OPTION_TEXT, NULL, FIELD(sort),
	 "sort by name, state, top1, loss, epochs, step, time, rate or started; -FIELD reverses the order (default: name)"},
	{"yes y", NULL, CT_OPT_CLEAN, CT_OPTION_FLAG, NULL, FIELD(yes), "remove without asking"},
	{"dry-run", NULL, CT_OPT_CLEAN, CT_OPTION_FLAG, NULL, FIELD(dry_run), "only show what would be removed"},
	{"quiet q", NULL, CT_OPT_SETS, CT_OPTION_QUIET, "log.console", 0,
	 "print only warnings and errors during training (log.console=off)"},
	{"verbose v", NULL, CT_OPT_ALL, CT_OPTION_FLAG, NULL, FIELD(verbose),
	 "also print log messages of level info, with timestamps"},
	{"search", "WORD", CT_OPT_SEARCH, CT_OPTION_SEARCH, NULL, 0,
	 "list the commands, options and keys whose names or descriptions contain a word"},
	{"help h", NULL, CT_OPT_ALL, CT_OPTION_HELP, NULL, 0, "print this page"},
	{"version V", NULL, CT_OPT_ALL, CT_OPTION_VERSION, NULL, 0, "print the version of ctrain"},
};

const struct ct_command *ct_command_at(size_t i)
{
	return i < CT_ARRAY_LEN(commands) ? &commands[i] : NULL;
}

const struct ct_option *ct_option_at(size_t i)
{
	return i < CT_ARRAY_LEN(options) ? &options[i] : NULL;
}

const struct ct_option *ct_option_find(const char *name, size_t len)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(options); i++) {
		if (ct_word_in(options[i].names, name, len))
			return &options[i];
	}
	return NULL;
}

const struct ct_option *ct_option_of(const struct ct_command *c, const struct ct_option *o)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(options); i++) {
		if (strcmp(options[i].names, o->names) == 0 && options[i].group & (c->options | CT_OPT_ALL))
			return &options[i];
	}
	return NULL;
}

const struct ct_command *ct_command_find(const char *name, const char *sub)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(commands); i++) {
		const struct ct_command *c = &commands[i];

		if (strcmp(c->name, name) == 0 && (c->sub ? sub && strcmp(c->sub, sub) == 0 : true))
			return c;
	}
	return NULL;
}

bool ct_command_has_subs(const char *name)
{
	bool has = false;

	for (size_t i = 0; i < CT_ARRAY_LEN(commands); i++) {
		if (strcmp(commands[i].name, name) != 0)
			continue;
		if (!commands[i].sub)
			return false;
		has = true;
	}
	return has;
}
