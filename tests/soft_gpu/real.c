/* For test programs that are linked to the real CUDA libraries: replaces the functions by which tests control the
 * software GPU. Tests that make calls fail, post work of their own, or count blocks or descriptors are skipped, and
 * live objects are not counted. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

static void skip_case(void)
{
	print_message("this case controls the software GPU, with which this program is not linked\n");
	skip();
}

void soft_gpu_set_seed(uint64_t seed)
{
	(void)seed;
}

void soft_gpu_set_faults(const char *faults)
{
	if (faults)
		skip_case();
}

cudaError_t soft_gpu_post(cudaStream_t stream, const struct soft_work *work)
{
	(void)stream, (void)work;
	skip_case();
	return cudaErrorNotSupported;
}

int soft_gpu_live(void)
{
	return 0;
}

uint64_t soft_gpu_blocks(void)
{
	skip_case();
	return 0;
}

int soft_cudnn_finalized(int type)
{
	(void)type;
	skip_case();
	return 0;
}

void soft_cudnn_set_broken(int64_t engine, enum soft_cudnn_stage stage)
{
	(void)stage;
	if (engine >= 0)
		skip_case();
}
