#include "base/sha256.h"

#include "tests/base/check.h"

static void assert_digest(const char *text, size_t repeat, size_t piece, const char *expected)
{
	struct ct_sha256 h;
	char hex[CT_SHA256_HEX];
	size_t len = strlen(text);

	ct_sha256_init(&h);
	for (size_t i = 0; i < repeat; i++) {
		for (size_t j = 0; j < len; j += piece)
			ct_sha256_update(&h, text + j, len - j < piece ? len - j : piece);
	}
	ct_sha256_update(&h, NULL, 0);
	ct_sha256_final_hex(&h, hex);
	assert_string_equal(hex, expected);
}

/* FIPS 180-4's examples. */
static void test_vectors(void **state)
{
	static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

	(void)state;
	assert_digest("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_digest("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	for (size_t piece = 1; piece <= 60; piece += 7)
		assert_digest(two, 1, piece, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	assert_digest("aaaaaaaaaa", 100000, 10, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
