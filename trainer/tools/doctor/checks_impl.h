/* The functions of the checks, one file per group. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_CHECKS_IMPL_H
#define CT_TRAINER_TOOLS_DOCTOR_CHECKS_IMPL_H

#include "trainer/tools/doctor/checks.h"

typedef void ct__judge(const struct ct_cluster *c, struct ct_findings *out);
typedef void ct__judge_node(const struct ct_facts *n, struct ct_findings *out);
typedef void ct__compare(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out);

/* check_launch.c */
ct__judge ct__check_missing;
ct__judge_node ct__check_nested, ct__check_node_rank, ct__check_names, ct__check_settings;
ct__compare ct__check_n_nodes;
/* check_address.c */
/* Whether this node cannot reach node 0 because of the master address. */
bool ct__master_is_wrong(const struct ct_facts *n);
/* Whether the master address is given as localhost or a numeric loopback address. */
bool ct__master_is_literal_loopback(const struct ct_facts *n);
/* The start of a sentence: other hosts do not reach a container's own network. "" outside of containers. */
const char *ct__container_advice(const struct ct_facts *n);
ct__judge ct__check_master, ct__check_loopback, ct__check_duplicates;
ct__judge_node ct__check_resolver;
ct__compare ct__check_family;
/* check_link.c */
ct__judge ct__check_reach, ct__check_bandwidth, ct__check_clock;
ct__judge_node ct__check_port;
ct__compare ct__check_mtu;
/* check_limits.c */
ct__judge_node ct__check_files, ct__check_locked, ct__check_shm, ct__check_cpus;
/* check_storage.c */
ct__judge_node ct__check_run_dir, ct__check_space, ct__check_speed, ct__check_data;
ct__compare ct__check_shared, ct__check_locks;
/* check_program.c */
ct__judge_node ct__check_nccl;
ct__compare ct__check_version, ct__check_build, ct__check_libraries, ct__check_config;
/* check_device.c */
ct__judge_node ct__check_devices, ct__check_lost, ct__check_xid;

#endif
