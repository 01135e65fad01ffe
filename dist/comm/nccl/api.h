/* The functions of libnccl.so.2. The library is opened when the first communicator needs it. */
#ifndef CT_DIST_COMM_NCCL_API_H
#define CT_DIST_COMM_NCCL_API_H

#include <nccl.h>

#include "base/status.h"

/* The oldest NCCL that is made for CUDA 13. All functions below exist in it. */
#define CT__NCCL_MIN_VERSION NCCL_VERSION(2, 27, 0)

#define CT__NCCL_FUNCTIONS(X)   \
	X(GetVersion)           \
	X(GetUniqueId)          \
	X(GetErrorString)       \
	X(GetLastError)         \
	X(CommInitRankConfig)   \
	X(CommGetAsyncError)    \
	X(CommFinalize)         \
	X(CommDestroy)          \
	X(CommAbort)            \
	X(MemAlloc)             \
	X(MemFree)              \
	X(CommRegister)         \
	X(CommDeregister)       \
	X(CommWindowRegister)   \
	X(CommWindowDeregister) \
	X(AllReduce)            \
	X(Broadcast)            \
	X(Reduce)               \
	X(AllGather)            \
	X(ReduceScatter)        \
	X(Send)                 \
	X(Recv)                 \
	X(GroupStart)           \
	X(GroupEnd)

struct nccl_api {
#define CT__NCCL_MEMBER(name) __typeof__(&nccl##name) name;
	CT__NCCL_FUNCTIONS(CT__NCCL_MEMBER)
#undef CT__NCCL_MEMBER
	int version; /* 23007 for 2.30.7 */
};

/* Opens the library and looks up its functions. Fails with CT_UNSUPPORTED if it is missing or too old. */
enum ct_status ct__nccl_api_open(struct nccl_api *api) CT_MUST_CHECK;
/* Returns CT_OK for ncclSuccess and CT_INPROGRESS for ncclInProgress. Otherwise fails with NCCL's description of the
 * error, and with its last message. function has returned the result. comm may be NULL. */
enum ct_status ct__nccl_check(const struct nccl_api *api, ncclComm_t comm, ncclResult_t r,
			      const char *function) CT_MUST_CHECK;

#endif
