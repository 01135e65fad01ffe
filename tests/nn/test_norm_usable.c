/* On which processors the norm and Winograd kernels may be called, and with which instructions. The norm kernels for
 * AVX-512 are compiled for its bfloat16 instructions, which Skylake, Cascade Lake and Ice Lake lack, so kernels on fp32
 * must not execute any of these instructions; and those for AVX2 must not execute any instruction of AVX-512. To check
 * this, a process executes the kernels one instruction at a time. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu/features.h"
#include "base/mem.h"
#include "nn/onednn/kernels/norm_kernels.h"
#include "nn/onednn/kernels/norm_pool.h"
#include "nn/onednn/winograd/winograd.h"
#include "tests/nn/nn_check.h"

#if defined(__x86_64__)

enum { MAX_LANES = 16, N = 2, SIDE = 2, PLANE = SIDE * SIDE, ELEMS = N * PLANE * MAX_LANES };
enum { RELU = 1, RESIDUAL = 2, FACTOR = 4, TWO = 8 /* gradients */, NHWC = 16, N_KINDS = 32 };

static unsigned features; /* of the processor that a test assumes; 0: the real one */

bool __real_ct_cpu_has(unsigned wanted);
bool __wrap_ct_cpu_has(unsigned wanted);
bool __wrap_ct_cpu_has(unsigned wanted)
{
	return features ? (features & wanted) == wanted : __real_ct_cpu_has(wanted);
}

static void assert_usable(unsigned of, int lanes, bool fp32, bool bf16)
{
	features = of;
	const bool got_fp32 = ct__norm_usable(false), got_bf16 = ct__norm_usable(true);
	const int got_lanes = ct__lanes();
	features = 0;
	assert_int_equal(got_lanes, lanes);
	assert_int_equal(got_fp32, fp32);
	assert_int_equal(got_bf16, bf16);
}

static void test_processors(void **state)
{
	const unsigned sandy_bridge = 1u << 31, haswell = CT_CPU_AVX2 | CT_CPU_FMA, skylake = haswell | CT_CPU_AVX512,
		       cascade_lake = skylake | CT_CPU_AVX512VNNI, ice_lake = cascade_lake | CT_CPU_AVX512VBMI,
		       cooper_lake = cascade_lake | CT_CPU_AVX512BF16, sapphire_rapids = ice_lake | CT_CPU_AVX512BF16;

	(void)state;
	assert_usable(sandy_bridge, 8, false, false);
	assert_usable(CT_CPU_AVX2, 8, false, false);
	assert_usable(haswell, 8, true, false);
	assert_usable(skylake, 16, true, false);
	assert_usable(cascade_lake, 16, true, false);
	assert_usable(ice_lake, 16, true, false);
	assert_usable(cooper_lake, 16, true, true);
	assert_usable(sapphire_rapids, 16, true, true);
	assert_usable(sapphire_rapids & ~(unsigned)CT_CPU_AVX512DQ, 8, true, false);
}

static _Alignas(64) float x[ELEMS], y[ELEMS], dy[ELEMS], dy2[ELEMS], dx[ELEMS], residual[ELEMS];
static _Alignas(64) float picked[ELEMS], mean[MAX_LANES], variance[MAX_LANES], gamma_[MAX_LANES];
static _Alignas(64) float beta[MAX_LANES], dgamma[MAX_LANES], dbeta[MAX_LANES], factor[N];
static _Alignas(64) float weights[25 * MAX_LANES * MAX_LANES], dw[25 * MAX_LANES * MAX_LANES];
static uint16_t mask[N * PLANE];
static uint8_t taps[ELEMS];
static struct ct_norm_partial *partials;
static void *scratch; /* of Winograd */

static void run_norm(bool bf16, int kind)
{
	const struct ct_norm p = {.n = N,
				  .channels = ct__lanes(),
				  .plane = PLANE,
				  .nhwc = kind & NHWC,
				  .bf16 = bf16,
				  .relu = kind & RELU,
				  .eps = 1e-3f,
				  .threads = 1,
				  .x = x,
				  .gamma = gamma_,
				  .beta = beta,
				  .mean = mean,
				  .variance = variance,
				  .residual = kind & RESIDUAL ? residual : NULL,
				  .factor = kind & FACTOR ? factor : NULL,
				  .y = y,
				  .mask = (kind & RELU) && (kind & RESIDUAL) ? mask : NULL,
				  .partials = partials,
				  .dy = dy,
				  .dy2 = kind & TWO ? dy2 : NULL,
				  .dx = dx,
				  .dresidual = kind & (RESIDUAL | TWO) ? residual : NULL,
				  .dgamma = dgamma,
				  .dbeta = dbeta};

	ct__norm_forward(&p);
	ct__norm_backward(&p);
}

static void run_pool(bool bf16, bool nhwc)
{
	struct ct_norm_pool p = {.shape = {.n = N,
					   .channels = ct__lanes(),
					   .nhwc = nhwc,
					   .in = {ct__lanes(), SIDE, SIDE},
					   .out = {ct__lanes(), 1, 1},
					   .win = ct_window_square(SIDE, SIDE, 0),
					   .eps = 1e-3f,
					   .bf16 = bf16},
				 .threads = 1,
				 .x = x,
				 .gamma = gamma_,
				 .beta = beta,
				 .mean = mean,
				 .variance = variance,
				 .y = y,
				 .picked = picked,
				 .taps = taps,
				 .partials = partials,
				 .dy = dy,
				 .dx = dx,
				 .dgamma = dgamma,
				 .dbeta = dbeta};

	ct__norm_pool_forward(&p);
	ct__norm_pool_backward(&p);
}

static struct ct_winograd winograd_of(int side)
{
	return (struct ct_winograd){.shape = {N, ct__lanes(), ct__lanes(), SIDE, SIDE, side / 2, side / 2, side, false},
				    .threads = 1,
				    .scratch = scratch,
				    .weights = weights,
				    .x = x,
				    .bias = beta,
				    .y = y,
				    .relu = true,
				    .dy = dy,
				    .dx = dx,
				    .dw = dw,
				    .db = dbeta};
}

static size_t winograd_bytes(int side)
{
	const struct ct_winograd op = winograd_of(side);
	size_t most = 0;

	for (int pass = 0; pass < CT_CONV_PASSES; pass++) {
		const size_t bytes = ct__winograd_scratch_bytes(&op.shape, (enum ct_conv_pass)pass, 1);

		most = bytes > most ? bytes : most;
	}
	return most;
}

static void run_winograd(int side)
{
	const struct ct_winograd op = winograd_of(side);

	ct__winograd_forward(&op);
	ct__winograd_backward_data(&op);
	ct__winograd_backward_weights(&op);
}

static void run_norms(bool bf16)
{
	for (int kind = 0; kind < N_KINDS; kind++)
		run_norm(bf16, kind);
	ct__norm_scale_rows(1, N, ELEMS / N, bf16, x, factor, y);
	run_pool(bf16, false);
	run_pool(bf16, true);
}

static void run_fp32(void)
{
	run_norms(false);
}

static void run_bf16(void)
{
	run_norms(true);
}

static void run_avx2(void)
{
	features = CT_CPU_AVX2 | CT_CPU_FMA;
	run_norms(false);
	run_winograd(3);
	run_winograd(5);
}

struct counts {
	int avx512, bf16; /* instructions of this program; -1: a process cannot be traced here */
};

/* The first and the last address of the instructions of this program. Libraries choose their instructions themselves.
 */
extern const char __executable_start[], etext[];

/* Counts the instruction at this address if it is of AVX-512: the first byte is that of the prefix EVEX. Those for
 * bfloat16 are VCVTNE2PS2BF16, VCVTNEPS2BF16 and VDPBF16PS. */
static void count(struct counts *n, pid_t child, uintptr_t at)
{
	uint8_t b[sizeof(long)];

	if (at < (uintptr_t)__executable_start || at >= (uintptr_t)etext)
		return;
	const long word = ptrace(PTRACE_PEEKTEXT, child, (void *)at, NULL);
	memcpy(b, &word, sizeof(b));
	const int prefix = b[2] & 3; /* 2: F3, 3: F2 */
	n->avx512 += b[0] == 0x62;
	n->bf16 += b[0] == 0x62 && (b[1] & 7) == 2 &&
		   ((b[4] == 0x72 && (prefix == 2 || prefix == 3)) || (b[4] == 0x52 && prefix == 2));
}

/* Counts the instructions that `run` executes. */
static struct counts count_all(void (*run)(void))
{
	struct user_regs_struct regs;
	struct counts found = {0, 0};
	int status;

	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(errno ? 1 : 2);
		raise(SIGSTOP);
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	const bool traced = WIFSTOPPED(status);
	while (WIFSTOPPED(status)) {
		assert_int_equal(ptrace(PTRACE_GETREGS, child, NULL, &regs), 0);
		count(&found, child, (uintptr_t)regs.rip);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	if (!traced)
		return (struct counts){-1, -1};
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return found;
}

static void test_instructions(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	printf("skipped: the checks of the sanitizer are too many instructions\n");
	skip();
#endif
	if (!ct__norm_usable(false)) {
		printf("skipped: this processor has no AVX2\n");
		skip();
	}
	partials = ct_calloc_aligned(64, ct__norm_scratch_bytes(N, ct__lanes()) +
						 ct__norm_nhwc_scratch_bytes(N, ct__lanes(), PLANE));
	scratch = ct_calloc_aligned(64, winograd_bytes(3) + winograd_bytes(5));
	assert_true(partials && scratch);
	const struct counts avx2 = count_all(run_avx2), fp32 = count_all(run_fp32), none = {-1, -1},
			    bf16 = ct__norm_usable(true) ? count_all(run_bf16) : none;
	ct_free_aligned(partials);
	ct_free_aligned(scratch);
	if (fp32.avx512 < 0) {
		printf("skipped: processes cannot be traced here\n");
		skip();
	}
	assert_int_equal(avx2.avx512, 0);
	assert_int_equal(fp32.bf16, 0);
	/* The instructions are recognized. */
	assert_true((fp32.avx512 > 1000) == (ct__lanes() == 16));
	assert_true(bf16.bf16 == -1 || bf16.bf16 > N_KINDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_processors), cmocka_unit_test(test_instructions)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	printf("skipped: the kernels are plain C on this processor\n");
	return 77;
}

#endif
