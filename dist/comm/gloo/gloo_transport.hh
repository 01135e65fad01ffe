/* gloo's transport over connections that ctrain has made and proved (mesh.h). */
#ifndef CT_DIST_COMM_GLOO_GLOO_TRANSPORT_HH
#define CT_DIST_COMM_GLOO_GLOO_TRANSPORT_HH

#include <gloo/common/error.h>
#include <gloo/transport/context.h>

namespace ctrain
{

/* An operation was not complete in time. */
struct TimeoutError : gloo::IoException {
	using gloo::IoException::IoException;
};

/* Creates a transport context, and starts its thread. fds [size]: non-blocking connections to the other ranks, which
 * must stay open as long as the transport exists. may_be_early(slot): a short message of this slot may be sent before
 * its receive is posted. This must not be so for operations in which a rank can complete its part without the others,
 * because the receivers keep such messages. Operations throw TimeoutError, or gloo::IoException if the connection to a
 * rank that takes part in them has ended. After that, the transport can only be destroyed. */
std::shared_ptr<gloo::transport::Context> make_transport(int rank, int size, const int *fds,
							 bool (*may_be_early)(uint64_t slot),
							 std::chrono::milliseconds timeout);

} // namespace ctrain

#endif
