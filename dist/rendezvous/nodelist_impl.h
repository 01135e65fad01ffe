/* Parses Slurm's compressed lists of host names ("n[1-3,07],login", "a[1-2]b[3-4]") and of counts ("2(x3),1"). The
 * functions have no side effects. For files in dist/ only. */
#ifndef CT_DIST_RENDEZVOUS_NODELIST_IMPL_H
#define CT_DIST_RENDEZVOUS_NODELIST_IMPL_H

#include "base/status.h"

/* Expands a list of host names in Slurm's order, in which the rightmost range changes fastest. The caller owns *names
 * (ct__nodelist_free). Fails with CT_USAGE if the list is malformed or has more than `max` names. */
enum ct_status ct__nodelist_expand(const char *text, size_t max, char ***names, size_t *n) CT_MUST_CHECK;
void ct__nodelist_free(char **names, size_t n);
/* Gets the i-th number of a list of counts. */
enum ct_status ct__countlist_at(const char *text, int i, int *out) CT_MUST_CHECK;

#endif
