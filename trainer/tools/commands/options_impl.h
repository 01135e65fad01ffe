/* The options that only one command accepts, as the user wrote them: NULL or false if they are not given. table.c
 * describes them. */
#ifndef CT_TRAINER_TOOLS_COMMANDS_OPTIONS_IMPL_H
#define CT_TRAINER_TOOLS_COMMANDS_OPTIONS_IMPL_H

#include <stdbool.h>

#include "trainer/tools/estimate/simulate_command.h"

struct ct_eval_options {
	bool report;
};

struct ct_predict_options {
	const char *top, *tta;
	bool csv, jsonl;
};

struct ct_init_options {
	const char *labels;
};

struct ct_plan_options {
	const char *assume;
	bool no_measure;
	struct ct_simulate_options simulate;
};

struct ct_config_dump_options {
	bool origins;
};

struct ct_digits_options {
	const char *seed, *train, *test;
};

struct ct_check_options {
	const char *labels;
};

struct ct_pack_options {
	const char *classes, *val_map, *shard_size, *short_side, *quality, *shuffle;
	bool seekable;
};

struct ct_show_options {
	const char *epoch, *seed, *count;
	bool before_after, mixup;
};

struct ct_clean_options {
	bool yes, dry_run;
};

struct ct_info_options {
	bool report;
};

struct ct_launch_options {
	const char *hosts, *ssh;
};

struct ct_bench_step_options {
	const char *trace;
};

struct ct_bench_data_options {
	const char *seconds;
};

struct ct_bench_comm_options {
	const char *op, *type, *redop, *root, *min, *max, *factor, *step, *iters, *warmup;
};

struct ct_slurm_options {
	const char *gpus, *cpus, *time, *partition, *account, *mem, *array;
	bool submit;
};

#endif
