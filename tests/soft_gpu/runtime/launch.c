/* Kernels: launches of kernels compiled by a C++ compiler, and the functions to which object files of nvcc refer. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { MAX_BLOCK = 1024, SHARED_BYTES = 48 << 10, SHARED_OPTIN_BYTES = 227 << 10 };

static struct limit { /* cudaFuncAttributeMaxDynamicSharedMemorySize */
	struct limit *next;
	const void *function;
	size_t bytes;
} *limits;

static struct limit *limit_of(const void *function)
{
	struct limit *l = limits;

	while (l && l->function != function)
		l = l->next;
	return l;
}

static cudaError_t set_attribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	struct limit *l = limit_of(function);

	if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
		return cudaSuccess;
	if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_OPTIN_BYTES)
		return cudaErrorInvalidValue;
	if (!l) {
		l = fake_alloc(sizeof(*l));
		*l = (struct limit){limits, function, 0};
		limits = l;
	}
	l->bytes = (size_t)value;
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	SOFT__CALL(SOFT__PLAIN, set_attribute(function, attribute, value));
}

static cudaError_t run_kernel(void *args)
{
	struct soft__grid g = *(const struct soft__grid *)args;

	g.args = (const char *)args + sizeof(g);
	g.order = soft__gpu.order >= 0 ? soft__gpu.order : (int)fake_draw(&soft__gpu.machine, 3);
	soft__run_grid(&g);
	return cudaSuccess;
}

static cudaError_t skip_kernel(void *args)
{
	(void)args;
	return cudaSuccess;
}

/* The arguments of ct__launch begin with the kernel, which ends at the first comma outside of template arguments. */
static void name_kernel(char *out, size_t size, const struct soft_kernel *k)
{
	int depth = 0;
	size_t n = 0;

	while (k->name[n] && (k->name[n] != ',' || depth > 0)) {
		depth += k->name[n] == '<' || k->name[n] == '(';
		depth -= k->name[n] == '>' || k->name[n] == ')';
		n++;
	}
	snprintf(out, size, "kernel %.*s (%s:%d)", (int)n, k->name, k->file, k->line);
}

static bool is_launchable(const struct soft__grid *g)
{
	const dim3 *d = &g->grid, *b = &g->block;

	return d->x >= 1 && d->x <= 2147483647u && d->y >= 1 && d->y <= 65535 && d->z >= 1 && d->z <= 65535 &&
	       b->x >= 1 && b->y >= 1 && b->z >= 1 && b->x <= MAX_BLOCK && b->y <= MAX_BLOCK && b->z <= 64 &&
	       (uint64_t)b->x * b->y * b->z <= MAX_BLOCK;
}

/* What ptxas reports. */
static const struct {
	const char *file, *kernel;
	unsigned registers[3]; /* of a thread, on sm_80, sm_90 and sm_100 */
} facts[] = {
#include "tests/soft_gpu/ptxas_rows.inc"
};

/* Returns the most registers that a thread of the kernel needs on any architecture, or 0 if this is not known. If the
 * launch does not name the kernel, it may be any kernel of its file. */
static unsigned registers_of(const struct soft_kernel *k)
{
	const char *file = strrchr(k->file, '/') ? strrchr(k->file, '/') + 1 : k->file;
	const size_t len = strcspn(k->name, "<, ");
	unsigned named = 0, any = 0;

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
		const bool same = strncmp(facts[i].kernel, k->name, len) == 0 &&
				  (!facts[i].kernel[len] || facts[i].kernel[len] == '<');

		for (int sm = 0; sm < 3 && strcmp(facts[i].file, file) == 0; sm++) {
			const unsigned n = facts[i].registers[sm];

			any = n > any ? n : any;
			named = same && n > named ? n : named;
		}
	}
	return named ? named : any;
}

/* A block must fit into the 65536 registers of a multiprocessor. They are allocated for warps, in units of 256. */
static bool has_registers(const struct soft__grid *g)
{
	const unsigned warps = (g->block.x * g->block.y * g->block.z + 31) / 32;

	return warps * ((registers_of(&g->kernel) * 32 + 255) / 256 * 256) <= 65536;
}

static atomic_ullong n_blocks;

uint64_t soft_gpu_blocks(void)
{
	return n_blocks;
}

static cudaError_t launch(const struct soft__grid *g, cudaStream_t handle, const void *args, size_t bytes)
{
	char name[256];
	char *all;
	struct soft_work work = {.name = name, .run = run_kernel, .args_bytes = sizeof(*g) + bytes};
	const struct limit *l = limit_of((const void *)g->kernel.function);
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess)
		return e;
	if (s->queue.device != soft__self.device)
		return cudaErrorInvalidResourceHandle;
	if (!is_launchable(g))
		return cudaErrorInvalidConfiguration;
	if (!has_registers(g))
		return cudaErrorLaunchOutOfResources;
	if (g->shared_bytes > (l && l->bytes > SHARED_BYTES ? l->bytes : SHARED_BYTES))
		return cudaErrorInvalidValue;
	n_blocks += (uint64_t)g->grid.x * g->grid.y * g->grid.z;
	name_kernel(name, sizeof(name), &g->kernel);
	if (s->queue.capture && soft__gpu.skip && strstr(name, soft__gpu.skip))
		work.run = skip_kernel;
	all = fake_alloc(work.args_bytes);
	memcpy(all, g, sizeof(*g));
	memcpy(all + sizeof(*g), args, bytes);
	work.args = all;
	e = soft__post(s, soft__work_create(&work));
	free(all);
	return e;
}

cudaError_t soft_gpu_launch(const struct soft_kernel *kernel, dim3 grid, dim3 block, size_t shared_bytes,
			    cudaStream_t stream, const void *args, size_t args_bytes)
{
	struct soft__grid g = {*kernel, grid, block, shared_bytes, 0, NULL};
	cudaError_t e = soft__enter("cudaLaunchKernel", SOFT__PLAIN);

	return soft__leave(e ? e : launch(&g, stream, args, args_bytes));
}

/* Objects of nvcc register their kernels when they are loaded, so that a program that contains them starts. Their code
 * is for a GPU and cannot run here. The declarations are those that nvcc generates. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
			    uint3 *bid, dim3 *block, dim3 *grid, int *size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
		       int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
char __cudaInitModule(void **handle);
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
			       cudaStream_t stream);

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	(void)binary;
	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
	(void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
			    uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
	(void)handle, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
		(void)size;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
		       int global)
{
	(void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

char __cudaInitModule(void **handle)
{
	(void)handle;
	return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
	(void)grid, (void)block, (void)shared, (void)stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	*grid = *block = (dim3){1, 1, 1};
	*shared = 0;
	*(void **)stream = NULL;
	return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	(void)function, (void)grid, (void)block, (void)args, (void)shared, (void)s;
	SOFT__CALL(SOFT__PLAIN, cudaErrorNoKernelImageForDevice);
}

cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *function)
{
	*out = (cudaKernel_t)(uintptr_t)function;
	return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s)
{
	return cudaLaunchKernel((const void *)kernel, grid, block, args, shared, s);
}
