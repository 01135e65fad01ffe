/* The parts of the facts. Each function leaves no error chain. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_COLLECT_IMPL_H
#define CT_TRAINER_TOOLS_DOCTOR_COLLECT_IMPL_H

#include "trainer/tools/doctor/collect.h"

void ct__collect_launch(const struct ct_collect_opts *o, struct ct_facts *f);
void ct__collect_net(const struct ct_collect_opts *o, struct ct_facts *f);
void ct__collect_host(const struct ct_collect_opts *o, struct ct_facts *f);
void ct__collect_storage(const struct ct_collect_opts *o, struct ct_facts *f);
void ct__collect_devices(const struct ct_collect_opts *o, struct ct_facts *f);

/* Counts the GPUs on the PCI bus and in the driver, in the file systems that are mounted at sys and proc. */
void ct__collect_gpus(const char *sys, const char *proc, struct ct_facts *f);
/* Copies the last error of a GPU in the records of /dev/kmsg, or "". */
void ct__find_xid(const char *records, char *out, size_t len);

#endif
