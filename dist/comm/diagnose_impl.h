/* Finds out which rank is late or has issued a different operation, for back ends whose library (gloo, MPI) only
 * detects that no data arrives. A rank that has waited for a long time writes the latest operations of its flight
 * record to the store and reads those of the other ranks. */
#ifndef CT_DIST_COMM_DIAGNOSE_IMPL_H
#define CT_DIST_COMM_DIAGNOSE_IMPL_H

#include "dist/comm/comm_impl.h"

/* Returns the tag of an operation; call it once for each, in the order of posting. Ranks get the same tag for their
 * k-th collective if all collectives up to this one are the same. The earlier ones matter because a rank that only
 * sends a short message ends its part of a collective whether or not anyone receives it. */
uint32_t ct__comm_tag(const ct_work *w);
/* Gets the number of a message that is about to be posted (struct ct_flight_record). */
enum ct_status ct__comm_number_message(ct_comm *c, const struct ct_request *w, int64_t *out) CT_MUST_CHECK;
/* Returns CT_MISMATCH if another waiting rank has issued a different operation in place of w. Otherwise, returns CT_OK
 * if `final` is false. If `final` is true because the deadline has passed, returns CT_TIMEOUT with a message that names
 * the ranks that have not reached w. */
enum ct_status ct__comm_diagnose(ct_comm *c, const ct_work *w, bool final) CT_MUST_CHECK;

#endif
