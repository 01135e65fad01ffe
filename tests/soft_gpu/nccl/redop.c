/* Reduction operators: those of NCCL, and those that a program creates. */
#include <stdio.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

/* Handles of different communicators differ. */
static int first_handle(const ncclComm_t c)
{
	return (int)ncclNumOps + (int)(c->serial % 100000) * SOFT__MAX_OPS;
}

static struct soft__op *find_op(ncclComm_t c, ncclRedOp_t handle)
{
	int i = (int)handle - first_handle(c);

	return i >= 0 && i < SOFT__MAX_OPS && c->ops[i].exists ? &c->ops[i] : NULL;
}

ncclResult_t soft__set_op(struct soft__task *t, ncclRedOp_t handle, ncclComm_t c)
{
	const struct soft__op *op;
	ncclDataType_t type = (ncclDataType_t)t->call.type;

	if ((int)handle < (int)ncclNumOps) {
		if ((int)handle < 0) {
			soft__warn("%s : invalid reduction operation %d", t->name, (int)handle);
			return ncclInvalidArgument;
		}
		t->call.op = (uint32_t)handle;
		if (handle == ncclAvg)
			t->scaled = soft__average(type, c->n_ranks, t->scalar);
		return ncclSuccess;
	}
	op = find_op(c, handle);
	if (!op) {
		soft__warn("%s : reduction operation %d unknown to this communicator", t->name, (int)handle);
		return ncclInvalidArgument;
	}
	if (op->type != type) {
		soft__warn("Data type supplied to user-created ncclRedOp_t does not match type given to reduction "
			   "operation");
		return ncclInvalidArgument;
	}
	t->call.op = ncclNumOps;
	t->scaled = true;
	t->scalar_at = op->scalar_at;
	memcpy(t->scalar, op->scalar, sizeof(t->scalar));
	return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *out, void *scalar, ncclDataType_t type, ncclScalarResidence_t where,
				      ncclComm_t c)
{
	int failed = soft_gpu_call(__func__), i = 0;
	ncclResult_t e = failed ? (ncclResult_t)failed : soft__ready(c, __func__);
	size_t bytes = soft__type_bytes(type);

	if (!e && (!out || !scalar || !bytes))
		e = ncclInvalidArgument;
	if (e)
		return e;
	if (where == ncclScalarDevice && !soft_gpu_is_device(scalar, bytes))
		soft_gpu_fail("ncclRedOpCreatePreMulSum: the scalar %p is not in device memory", scalar);
	while (i < SOFT__MAX_OPS && c->ops[i].exists)
		i++;
	if (i == SOFT__MAX_OPS)
		soft_gpu_fail("ncclRedOpCreatePreMulSum: more than %d operators", SOFT__MAX_OPS);
	c->ops[i] = (struct soft__op){.exists = true, .type = type};
	if (where == ncclScalarDevice)
		c->ops[i].scalar_at = scalar;
	else
		memcpy(c->ops[i].scalar, scalar, bytes);
	*out = (ncclRedOp_t)(first_handle(c) + i);
	return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t handle, ncclComm_t c)
{
	int failed = soft_gpu_call(__func__);
	struct soft__op *op;

	if (failed)
		return (ncclResult_t)failed;
	if (!c) {
		soft__warn("ncclRedOpDestroy : invalid communicator passed.");
		return ncclInvalidArgument;
	}
	soft__check_comm(c, __func__);
	op = find_op(c, handle);
	if (!op) {
		soft__warn("ncclRedOpDestroy : operator unknown to this communicator.");
		return ncclInvalidArgument;
	}
	op->exists = false;
	return ncclSuccess;
}
