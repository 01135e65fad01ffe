/* The limit of a process on the instructions of the processor: oneDNN and ctrain's kernels obey it. oneDNN accepts one
 * limit per process, so CMakeLists.txt runs this test once for each set. */
#include "base/cpu/features.h"
#include "tests/nn/nn_check.h"

static void test_limit(void **state)
{
	static const char *const refused[] = {[CT_ISA_AVX2] = "avx512",
					      [CT_ISA_AVX512] = "bf16",
					      [CT_ISA_AVX512_BF16] = "amx",
					      [CT_ISA_AMX] = "none"};
	const enum ct_isa limit = ct_cpu_limit();
	ct_device *device;
	ct_engine *engine;

	(void)state;
	assert_ok(ct_device_open("cpu", 0, &device));
	assert_ok(ct_engine_open("onednn", device, 1, &engine));
	printf("%s: %s\n", ct_isa_name(limit), ct_engine_version(engine));
	assert_null(strstr(ct_engine_version(engine), refused[limit]));
	if (limit >= CT_ISA_AVX512)
		assert_non_null(strstr(ct_engine_version(engine), "avx512"));
	assert_true(ct_cpu_has(CT_CPU_AVX512) == (limit >= CT_ISA_AVX512));
	if (limit >= CT_ISA_AVX512_BF16)
		assert_ok(ct_engine_check_precision(engine, CT_PRECISION_BF16));
	else
		assert_fails(ct_engine_check_precision(engine, CT_PRECISION_BF16), CT_UNSUPPORTED,
			     "finds no bfloat16 instructions");
	ct_engine_close(engine);
	/* oneDNN cannot change it any more. */
	if (limit > CT_ISA_AVX2) {
		assert_ok(ct_cpu_set_limit(CT_ISA_AVX2));
		assert_fails(ct_engine_open("onednn", device, 1, &engine), CT_UNSUPPORTED, "already uses");
	}
	ct_device_close(device);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit)};
	int skipped = limit_isa(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
