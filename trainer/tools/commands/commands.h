/* The commands of ctrain, and the table of them and of all options. */
#ifndef CT_TRAINER_TOOLS_COMMANDS_COMMANDS_H
#define CT_TRAINER_TOOLS_COMMANDS_COMMANDS_H

#include "trainer/tools/cli/cli.h"

extern const struct ct_cli_table ct_commands;

/* The commands. Each is in the file cmd_NAME.c, unless noted otherwise. */
enum ct_status ct_cmd_train(const struct ct_cli *cli); /* runs as a worker or as the launcher */
enum ct_status ct_cmd_eval(const struct ct_cli *cli);
enum ct_status ct_cmd_init(const struct ct_cli *cli);
enum ct_status ct_cmd_predict(const struct ct_cli *cli);
enum ct_status ct_cmd_plan(const struct ct_cli *cli);
enum ct_status ct_cmd_check(const struct ct_cli *cli);       /* cmd_config.c */
enum ct_status ct_cmd_config_docs(const struct ct_cli *cli); /* cmd_config.c: `ctrain config docs|schema|dump` */
enum ct_status ct_cmd_config_schema(const struct ct_cli *cli);
enum ct_status ct_cmd_config_dump(const struct ct_cli *cli);
enum ct_status ct_cmd_runs(const struct ct_cli *cli); /* cmd_runs.c: `ctrain runs`, `runs clean`, `compare`, `watch` */
enum ct_status ct_cmd_runs_clean(const struct ct_cli *cli);
enum ct_status ct_cmd_compare(const struct ct_cli *cli);
enum ct_status ct_cmd_watch(const struct ct_cli *cli);
enum ct_status ct_cmd_postmortem(const struct ct_cli *cli);
enum ct_status ct_cmd_report(const struct ct_cli *cli);
enum ct_status ct_cmd_info(const struct ct_cli *cli);
enum ct_status ct_cmd_doctor(const struct ct_cli *cli);
enum ct_status ct_cmd_explain(const struct ct_cli *cli); /* cmd_doctor.c */
enum ct_status ct_cmd_launch(const struct ct_cli *cli);
enum ct_status ct_cmd_import(const struct ct_cli *cli);
enum ct_status ct_cmd_data_digits(const struct ct_cli *cli);
enum ct_status ct_cmd_data_check(const struct ct_cli *cli);
enum ct_status ct_cmd_data_pack(const struct ct_cli *cli);
enum ct_status ct_cmd_data_stats(const struct ct_cli *cli);
enum ct_status ct_cmd_data_show(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_show(const struct ct_cli *cli); /* cmd_ckpt.c */
enum ct_status ct_cmd_ckpt_verify(const struct ct_cli *cli);
enum ct_status ct_cmd_export(const struct ct_cli *cli);
enum ct_status ct_cmd_ckpt_export(const struct ct_cli *cli); /* cmd_export.c */
enum ct_status ct_cmd_bench_step(const struct ct_cli *cli);  /* cmd_bench.c */
enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli);
enum ct_status ct_cmd_bench_data(const struct ct_cli *cli);
enum ct_status ct_cmd_slurm(const struct ct_cli *cli);
enum ct_status ct_cmd_slurm_status(const struct ct_cli *cli); /* cmd_slurm.c */

#endif
