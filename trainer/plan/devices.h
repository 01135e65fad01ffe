/* Chooses the devices of a run from `device`, launch.devices and train.engine. */
#ifndef CT_TRAINER_PLAN_DEVICES_H
#define CT_TRAINER_PLAN_DEVICES_H

#include "base/device/device.h"
#include "trainer/config/config.h"

enum { CT_PLAN_DEVICES_MAX = 64 };

struct ct_plan_devices {
	const char *kind; /* "cpu", "cuda" or "lazy" */
	/* The GPUs of the ranks of this host: the rank with local rank r uses index[r % n]. For other devices, n is 0.
	 */
	int n, index[CT_PLAN_DEVICES_MAX];
	bool shared; /* the config lists a GPU twice, so ranks may share it */
	/* The GPUs that the config does not list and that ctrain cannot use, each with the reason. */
	char skipped[512];
	/* If `device: auto` has chosen the CPU: the reason, and whether a GPU was to be expected, because the machine
	 * has an NVIDIA driver or CTRAIN_CUDA_LIBS is set. */
	char why[512];
	bool has_driver;
};

/* Makes the choice, without opening a device. Fails with CT_NO_DEVICE if a device does not exist, and with CT_CONFIG if
 * launch.devices is set but no GPU is used. */
enum ct_status ct_plan_devices(const struct ct_config *c, struct ct_plan_devices *out) CT_MUST_CHECK;
/* Fails with CT_NO_DEVICE if `local` ranks on this host would have to share GPUs and the config does not request it. */
enum ct_status ct_plan_check_devices(const struct ct_config *c, int local) CT_MUST_CHECK;
/* Returns the number of ranks on this node (launch.procs). auto is one per GPU, for as many GPUs as launch.pipeline
 * allows; if it needs more GPUs, ct_plan_check_devices fails. Without GPUs, auto is one per stage of a pipeline, else 2
 * (1 if there is only one CPU). */
int ct_plan_local_procs(const struct ct_config *c);
/* Returns whether the ranks of this host compute on its CPUs. */
bool ct_plan_on_cpu(const struct ct_config *c);
/* Limits the instructions of this process to train.isa. Fails with CT_UNSUPPORTED if the processor does not have them.
 * The functions that open the data or the device of a config call it first, so it applies to everything that computes.
 */
enum ct_status ct_plan_limit_cpu(const struct ct_config *c) CT_MUST_CHECK;
/* Opens the device of a rank: its GPU, or the host's CPUs. */
enum ct_status ct_plan_device_open(const struct ct_config *c, int local_rank, ct_device **out) CT_MUST_CHECK;

#endif
