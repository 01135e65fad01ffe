/* The table lists the versions from `from` up to, but not including, `fixed`. Each row names its source. Of several
 * rows that apply, the first one is reported. */
#include "dist/settings/nccl_defects.h"

#include <stdio.h>

#define VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))

struct defect {
	int from, fixed;
	bool windows; /* it concerns only this use */
	const char *what, *remedy;
};

static const struct defect defects[] = {
	/* The built-in kernels for symmetric memory corrupt small messages. Source: the notes of release 2.28.7. */
	{VERSION(2, 28, 0), VERSION(2, 28, 7), true,
	 "may compute wrong sums of small messages and of groups in registered windows",
	 "set dist.nccl_windows=false, or install NCCL 2.30.7 or later"},
	/* The kernels for symmetric memory are launched with programmatic stream serialization, but do not wait for the
	 * kernels before them (cudaGridDependencySynchronize is missing; it was restored in 2.30.7). Source:
	 * NVIDIA/nccl, commit 2948185 and issue 1924. */
	{VERSION(2, 28, 0), VERSION(2, 30, 7), true,
	 "may read registered windows before the gradients in them are complete, and all ranks then get the same wrong "
	 "sums",
	 "set dist.nccl_windows=false, or install NCCL 2.30.7 or later"},
};

void ct_nccl_version_text(int version, char *buf, size_t len)
{
	snprintf(buf, len, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

enum ct_status ct_nccl_check_defects(int version, bool windows)
{
	char name[32];

	for (size_t i = 0; i < sizeof(defects) / sizeof(*defects); i++) {
		const struct defect *d = &defects[i];

		if (version < d->from || version >= d->fixed || (d->windows && !windows))
			continue;
		ct_nccl_version_text(version, name, sizeof(name));
		CT_FAIL(CT_UNSUPPORTED, "NCCL %s %s", name, d->what);
		return ct_error_hint("%s", d->remedy);
	}
	return CT_OK;
}
