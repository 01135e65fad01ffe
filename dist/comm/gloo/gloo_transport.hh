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
 * must stay open as long as the transport exists. A send whose slot is at least first_announced is done only after its
 * receive has been posted, however short it is. Operations throw TimeoutError, or gloo::IoException if the connection
 * to a rank that takes part in them has ended. After that, the transport can only be destroyed. */
std::shared_ptr<gloo::transport::Context> make_transport(int rank, int size, const int *fds, uint64_t first_announced,
							 std::chrono::milliseconds timeout);

} // namespace ctrain

#endif
