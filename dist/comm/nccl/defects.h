/* Versions of NCCL with known defects that concern ctrain. */
#ifndef CT_DIST_COMM_NCCL_DEFECTS_H
#define CT_DIST_COMM_NCCL_DEFECTS_H

#include <stdbool.h>

#include "base/status.h"

/* How ctrain would use NCCL. */
struct ct_nccl_use {
	int version;  /* as of ncclGetVersion */
	bool windows; /* collectives on registered windows in recorded steps (dist.nccl_windows) */
};

/* Fails with CT_UNSUPPORTED if this version has a defect that this use meets. The message states what would go wrong,
 * and the hint how to avoid it. */
enum ct_status ct__nccl_check_defects(const struct ct_nccl_use *use) CT_MUST_CHECK;

#endif
