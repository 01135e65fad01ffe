/* What the module libctrain_cuda.so exports for the communicator "nccl". The module does not depend on libnccl, which
 * it opens when it is needed, so that GPUs can be used without it. */
#ifndef CT_DIST_COMM_NCCL_NCCL_MODULE_H
#define CT_DIST_COMM_NCCL_NCCL_MODULE_H

#include "base/process/module.h"
#include "dist/comm/comm_impl.h"

struct ct_nccl_module {
	struct ct_module_head head;
	const struct ct_comm_ops *ops;
	/* Opens libnccl.so.2, and gets its version (23007 for 2.30.7). Returns CT_UNSUPPORTED, with the reason, if it
	 * is missing or too old. */
	enum ct_status (*version)(int *out);
};

#endif
