/* Versions of NCCL with known defects that concern ctrain. The communicator refuses them, and `ctrain doctor` reports
 * them. Versions are numbers as in ncclGetVersion: 23007 is 2.30.7. */
#ifndef CT_DIST_SETTINGS_NCCL_DEFECTS_H
#define CT_DIST_SETTINGS_NCCL_DEFECTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Fails with CT_UNSUPPORTED if this version has a defect that concerns the options. windows: collectives on registered
 * windows, also in recorded steps (dist.nccl_windows). The message states what would go wrong, and the hint how to
 * avoid it. */
enum ct_status ct_nccl_check_defects(int version, bool windows) CT_MUST_CHECK;
/* Writes "2.30.7". */
void ct_nccl_version_text(int version, char *buf, size_t len);

#endif
