#include <sys/mman.h>
#include <unistd.h>

#include "tests/base/check.h"

static void test_zeroed_and_counted(void **state)
{
	uint64_t before = ct_mem_count();
	unsigned char *p = ct_calloc(100, 3), *empty = ct_calloc(0, 8);

	(void)state;
	assert_non_null(p);
	assert_non_null(empty);
	for (int i = 0; i < 300; i++)
		assert_int_equal(p[i], 0);
	memset(p, 7, 300);
	p = ct_realloc(p, 200, 3);
	assert_non_null(p);
	for (int i = 0; i < 300; i++)
		assert_int_equal(p[i], 7);
	assert_int_equal(ct_mem_count() - before, 3);
	ct_free(p);
	ct_free(empty);
	ct_free(NULL);
}

static void test_overflow(void **state)
{
	char *p = ct_calloc(1, 8);

	(void)state;
	/* If growing fails, the block is unchanged. */
	memcpy(p, "intact", 7);
	assert_null(ct_calloc(SIZE_MAX / 2 + 1, 2));
	assert_int_equal(ct_error_status(), CT_NOMEM);
	assert_null(ct_calloc(SIZE_MAX, 1));
	assert_null(ct_realloc(p, SIZE_MAX / 4, 8));
	assert_string_equal(p, "intact");
	assert_null(ct_calloc_aligned(64, SIZE_MAX - 10));
	assert_null(ct_calloc_aligned(4096, PTRDIFF_MAX));
	assert_string_not_equal(ct_error_hint_text(), "");
	ct_free(p);
	ct_error_clear();
}

static enum ct_status two_blocks(void **a, void **b)
{
	CT_TRY_ALLOC(*a = ct_calloc(1, 1));
	CT_TRY_ALLOC(*b = ct_calloc(1, 1));
	return CT_OK;
}

static void test_fail_after(void **state)
{
	void *a = NULL, *b = NULL, *c;

	(void)state;
	ct_mem_fail_after(2);
	assert_fails(two_blocks(&a, &b), CT_NOMEM, "out of memory");
	assert_non_null(a);
	assert_null(b);
	assert_non_null(strstr(ct_error_frames(), "two_blocks"));
	/* Only one allocation fails. */
	c = ct_calloc_aligned(64, 1);
	assert_non_null(c);
	ct_mem_fail_after(1);
	assert_null(ct_calloc_aligned(64, 1));
	ct_mem_fail_after(1);
	assert_null(ct_strdup("x"));
	ct_mem_fail_after(1);
	assert_null(ct_realloc(NULL, 1, 1));
	ct_mem_fail_after(5);
	ct_mem_fail_after(0);
	ct_free_aligned(c);
	ct_free(a);
	ct_error_clear();
}

static enum ct_status append(int **v, int *n, int *cap, int x)
{
	CT_TRY_GROW(*v, *n, *cap);
	(*v)[(*n)++] = x;
	return CT_OK;
}

static void test_grow(void **state)
{
	const uint64_t before = ct_mem_count();
	int *v = NULL, n = 0, cap = 0;
	size_t room = SIZE_MAX / sizeof(int) - 1;

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(append(&v, &n, &cap, i), CT_OK);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(v[i], i);
	assert_true(cap >= 1000 && ct_mem_count() - before < 10);
	/* A failure changes nothing. */
	for (; n < cap; n++)
		v[n] = 0;
	ct_mem_fail_after(1);
	assert_fails(append(&v, &n, &cap, 7), CT_NOMEM, "out of memory");
	assert_true(n == cap && v[999] == 999);
	/* An impossible size is refused and does not wrap around. */
	assert_null(ct_array_grow(v, room, &room, sizeof(int)));
	assert_true(room == SIZE_MAX / sizeof(int) - 1);
	assert_null(ct_array_grow(v, SIZE_MAX - 1, &room, 1));
	ct_free(v);
	ct_error_clear();
}

static void test_aligned(void **state)
{
	static const size_t sizes[] = {0, 1, 63, 4096, (4 << 20) - 1, 4 << 20, (5 << 20) + 12345};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		for (size_t align = 1; align <= 4096; align *= 8) {
			/* Twice: a recycled block must be zeroed, too. */
			for (int again = 0; again < 2; again++) {
				unsigned char *p = ct_calloc_aligned(align, sizes[i]);
				unsigned char any = 0;

				assert_non_null(p);
				assert_int_equal((uintptr_t)p % align, 0);
				for (size_t j = 0; j < sizes[i]; j++)
					any |= p[j];
				assert_int_equal(any, 0);
				if (sizes[i] > 0)
					memset(p, 0xA5, sizes[i]);
				ct_free_aligned(p);
			}
		}
	}
	ct_free_aligned(NULL);
}

/* Returns whether huge pages were requested for p ("hg" in the VmFlags of its mapping), or -1 if the kernel does not
 * show it. */
static int asks_for_huge_pages(const void *p)
{
	char line[512];
	bool here = false;
	int found = -1;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && strchr(line, '-') && !strstr(line, "kB"))
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, " hg") != NULL;
	}
	if (f)
		fclose(f);
	return found;
}

/* With the address sanitizer, large blocks are made like small ones. */
static void skip_with_sanitizer(void)
{
#ifdef __SANITIZE_ADDRESS__
	print_message("the address sanitizer has its own memory for large blocks\n");
	skip();
#endif
}

static void test_huge_pages(void **state)
{
	skip_with_sanitizer();
	char *p = ct_calloc_aligned(64, 16 << 20);
	int found = asks_for_huge_pages(p + (4 << 20));

	(void)state;
	assert_int_equal((uintptr_t)p % (2 << 20), 0);
	ct_free_aligned(p);
	if (found < 0 || !ct_file_exists("/sys/kernel/mm/transparent_hugepage/enabled")) {
		print_message("this kernel has no transparent huge pages\n");
		skip();
	}
	assert_int_equal(found, 1);
}

/* The kernel clears the pages of a large block when its users write them, and not when it is allocated. */
static void test_large_blocks_are_untouched(void **state)
{
	const size_t bytes = 16 << 20, n_pages = bytes / (size_t)sysconf(_SC_PAGESIZE);
	unsigned char resident[4096];

	(void)state;
	skip_with_sanitizer();
	char *p = ct_calloc_aligned(64, bytes);
	assert_non_null(p);
	assert_in_range(n_pages, 2, sizeof(resident));
	assert_int_equal(mincore(p, bytes, resident), 0);
	for (size_t i = 0; i < n_pages; i++)
		assert_false(resident[i] & 1);
	p[0] = 1;
	assert_int_equal(mincore(p, bytes, resident), 0);
	assert_true(resident[0] & 1);
	assert_false(resident[n_pages - 1] & 1);
	ct_free_aligned(p);
	assert_int_equal(mincore(p, bytes, resident), -1); /* nothing is mapped */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeroed_and_counted),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_fail_after),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_aligned),
		cmocka_unit_test(test_huge_pages),
		cmocka_unit_test(test_large_blocks_are_untouched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
