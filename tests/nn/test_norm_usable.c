/* On which processors the norm kernels may be called. They are compiled for the bfloat16 instructions of AVX-512, which
 * Skylake, Cascade Lake and Ice Lake lack, so kernels on fp32 must not execute any of these instructions. To check
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
#include "tests/nn/nn_check.h"

#if defined(__x86_64__)

enum { N = 2, SIDE = 2, PLANE = SIDE * SIDE, ELEMS = N * PLANE * CT_LANES };
enum { RELU = 1, RESIDUAL = 2, FACTOR = 4, TWO = 8 /* gradients */, N_KINDS = 16 };

static unsigned features; /* of the processor that a test assumes; 0: the real one */

bool __real_ct_cpu_has(unsigned wanted);
bool __wrap_ct_cpu_has(unsigned wanted);
bool __wrap_ct_cpu_has(unsigned wanted)
{
	return features ? (features & wanted) == wanted : __real_ct_cpu_has(wanted);
}

static void assert_usable(unsigned of, bool fp32, bool bf16)
{
	features = of;
	const bool got_fp32 = ct__norm_usable(false), got_bf16 = ct__norm_usable(true);
	features = 0;
	assert_int_equal(got_fp32, fp32);
	assert_int_equal(got_bf16, bf16);
}

static void test_processors(void **state)
{
	const unsigned haswell = CT_CPU_AVX2 | CT_CPU_FMA, skylake = haswell | CT_CPU_AVX512,
		       cascade_lake = skylake | CT_CPU_AVX512VNNI, ice_lake = cascade_lake | CT_CPU_AVX512VBMI,
		       cooper_lake = cascade_lake | CT_CPU_AVX512BF16, sapphire_rapids = ice_lake | CT_CPU_AVX512BF16;

	(void)state;
	assert_usable(haswell, false, false);
	assert_usable(skylake, true, false);
	assert_usable(cascade_lake, true, false);
	assert_usable(ice_lake, true, false);
	assert_usable(cooper_lake, true, true);
	assert_usable(sapphire_rapids, true, true);
	assert_usable(sapphire_rapids & ~(unsigned)CT_CPU_AVX512DQ, false, false);
}

static _Alignas(64) float x[ELEMS], y[ELEMS], dy[ELEMS], dy2[ELEMS], dx[ELEMS], residual[ELEMS];
static _Alignas(64) float picked[ELEMS], mean[CT_LANES], variance[CT_LANES], gamma_[CT_LANES], beta[CT_LANES];
static _Alignas(64) float dgamma[CT_LANES], dbeta[CT_LANES], factor[N];
static uint16_t mask[N * PLANE];
static uint8_t taps[ELEMS];
static struct ct_norm_partial *partials;

static void run_norm(bool bf16, int kind)
{
	const struct ct_norm p = {.n = N,
				  .channels = CT_LANES,
				  .plane = PLANE,
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

static void run_pool(bool bf16)
{
	struct ct_norm_pool p = {.shape = {.n = N,
					   .channels = CT_LANES,
					   .in = {CT_LANES, SIDE, SIDE},
					   .out = {CT_LANES, 1, 1},
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

static void run_kernels(bool bf16)
{
	for (int kind = 0; kind < N_KINDS; kind++)
		run_norm(bf16, kind);
	ct__norm_scale_rows(1, N, ELEMS / N, bf16, x, factor, y);
	run_pool(bf16);
}

/* Returns whether the instruction at this address is VCVTNE2PS2BF16, VCVTNEPS2BF16 or VDPBF16PS. */
static bool is_bf16(pid_t child, unsigned long long at)
{
	const long word = ptrace(PTRACE_PEEKTEXT, child, (void *)(uintptr_t)at, NULL);
	uint8_t b[sizeof(word)];

	memcpy(b, &word, sizeof(b));
	const int prefix = b[2] & 3; /* 2: F3, 3: F2 */
	return b[0] == 0x62 && (b[1] & 7) == 2 &&
	       ((b[4] == 0x72 && (prefix == 2 || prefix == 3)) || (b[4] == 0x52 && prefix == 2));
}

/* Returns how many bfloat16 instructions the kernels execute, or -1 if a process cannot be traced here. */
static int count_bf16(bool bf16)
{
	struct user_regs_struct regs;
	int status, found = 0;

	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(errno ? 1 : 2);
		raise(SIGSTOP);
		run_kernels(bf16);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	const bool traced = WIFSTOPPED(status);
	while (WIFSTOPPED(status)) {
		assert_int_equal(ptrace(PTRACE_GETREGS, child, NULL, &regs), 0);
		found += is_bf16(child, regs.rip);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	if (!traced)
		return -1;
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
		printf("skipped: this processor has no AVX-512\n");
		skip();
	}
	partials = ct_calloc_aligned(64, 4096);
	assert_true(partials && ct__norm_scratch_bytes(N, CT_LANES) <= 4096);
	const int in_fp32 = count_bf16(false), in_bf16 = ct__norm_usable(true) ? count_bf16(true) : -1;
	ct_free_aligned(partials);
	if (in_fp32 < 0) {
		printf("skipped: processes cannot be traced here\n");
		skip();
	}
	assert_int_equal(in_fp32, 0);
	if (in_bf16 >= 0)
		assert_true(in_bf16 > N_KINDS); /* the instructions are recognized */
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
