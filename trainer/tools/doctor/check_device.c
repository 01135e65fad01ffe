/* GPUs: requested, visible and healthy. A device error that planning a run would report comes with its own hint, but if
 * CUDA_VISIBLE_DEVICES is set, it is the more likely cause. A lost GPU is an error even if enough are left, because the
 * numbers of the others may have changed. */
#include <string.h>

#include "trainer/tools/doctor/checks_impl.h"

void ct__check_devices(const struct ct_facts *n, struct ct_findings *out)
{
	const bool few = strcmp(n->device, "cuda") == 0 && n->gpus_wanted > n->gpus_visible;

	if (!n->device_error[0] && !few)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_NO_DEVICE, n);

	if (n->device_error[0])
		ct_finding_what(f, "%s", n->device_error);
	else
		ct_finding_what(f, "%lld GPUs are requested, but this program sees %lld%s%s", (long long)n->gpus_wanted,
				(long long)n->gpus_visible, n->visible_devices[0] ? "; CUDA_VISIBLE_DEVICES=" : "",
				n->visible_devices);
	ct_finding_why(f, "a rank without a device fails with \"invalid device ordinal\"");
	if (n->visible_devices[0])
		ct_finding_fix(f, "correct CUDA_VISIBLE_DEVICES=%s, or use --procs %lld", n->visible_devices,
			       (long long)(n->gpus_visible > 0 ? n->gpus_visible : 1));
	else if (n->device_hint[0])
		ct_finding_fix(f, "%s", n->device_hint);
	else
		ct_finding_fix(
			f,
			"correct launch.devices or device, or use --procs %lld; in a container, start it with --gpus all",
			(long long)(n->gpus_visible > 0 ? n->gpus_visible : 1));
}

void ct__check_lost(const struct ct_facts *n, struct ct_findings *out)
{
	/* Without a driver, GPUs on the bus are not meant for CUDA. */
	if (strcmp(n->device, "cpu") == 0 || n->gpus_driver <= 0 || n->gpus_driver >= n->gpus_pci)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_DEVICE, n);

	ct_finding_what(f, "the driver has %lld of the %lld GPUs on the PCI bus; lost: %s", (long long)n->gpus_driver,
			(long long)n->gpus_pci, n->lost_slots);
	ct_finding_why(f, "the GPU has failed or fallen off the bus; the indexes of the other GPUs may have changed");
	ct_finding_fix(
		f,
		"reboot the host, and if the GPU does not come back, have it replaced; until then run with --procs %lld or without this host (Slurm: scontrol update nodename=%s state=drain reason=gpu)",
		(long long)n->gpus_driver, n->host);
}

void ct__check_xid(const struct ct_facts *n, struct ct_findings *out)
{
	if (!n->xid[0])
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_DEVICE, n);

	ct_finding_what(f, "the driver has logged an error of a GPU: %s", n->xid);
	ct_finding_why(f,
		       "after errors such as Xid 48, 63, 74, 79 and 95, a GPU may return wrong results or disappear");
	ct_finding_fix(
		f,
		"dmesg | grep Xid shows all; reset the GPU when it is idle (nvidia-smi --gpu-reset), and drain the host if the error repeats");
}
