/* The table lists the versions from `from` up to, but not including, `fixed`. Each row names its source. */
#include "dist/comm/nccl/defects.h"

#include "dist/comm/nccl/api.h"

struct defect {
	int from, fixed;
	bool windows; /* it concerns only this use */
	const char *what, *remedy;
};

static const struct defect defects[] = {
	/* The kernels for symmetric memory are launched with programmatic stream serialization, but do not wait for the
	 * kernels before them (cudaGridDependencySynchronize is missing; it was restored in 2.30.7). Source:
	 * NVIDIA/nccl, commit 2948185 and issue 1924. */
	{NCCL_VERSION(2, 28, 0), NCCL_VERSION(2, 30, 7), true,
	 "may read registered windows before the gradients in them are complete, and all ranks then get the same wrong "
	 "sums",
	 "set dist.nccl_windows=false, or install NCCL 2.30.7 or later"},
};

enum ct_status ct__nccl_check_defects(const struct ct_nccl_use *use)
{
	char version[32];

	for (size_t i = 0; i < sizeof(defects) / sizeof(*defects); i++) {
		const struct defect *d = &defects[i];

		if (use->version < d->from || use->version >= d->fixed || (d->windows && !use->windows))
			continue;
		ct__nccl_version_text(use->version, version, sizeof(version));
		CT_FAIL(CT_UNSUPPORTED, "NCCL %s %s", version, d->what);
		return ct_error_hint("%s", d->remedy);
	}
	return CT_OK;
}
