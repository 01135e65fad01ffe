#include "base/hash/sha256.h"

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

static void assert_hmac(const void *key, size_t key_len, const char *text, const char *expected)
{
	uint8_t once[CT_SHA256_BYTES], parts[CT_SHA256_BYTES];
	size_t len = strlen(text);
	const struct ct_hmac_part all = {text, len}, three[] = {{text, 3}, {NULL, 0}, {text + 3, len - 3}};
	char hex[CT_SHA256_HEX];

	ct_hmac_sha256(key, key_len, &all, 1, once);
	for (size_t i = 0; i < sizeof(once); i++)
		snprintf(hex + 2 * i, 3, "%02x", once[i]);
	assert_string_equal(hex, expected);
	ct_hmac_sha256(key, key_len, three, 3, parts);
	assert_true(ct_sha256_equal(once, parts));
	for (size_t i = 0; i < sizeof(parts); i++) {
		parts[i] ^= 1;
		assert_false(ct_sha256_equal(once, parts));
		parts[i] ^= 1;
	}
}

/* Test cases 1, 2 and 6 of RFC 4231. */
static void test_hmac(void **state)
{
	char key[131];

	(void)state;
	memset(key, 0x0b, 20);
	assert_hmac(key, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	assert_hmac("Jefe", 4, "what do ya want for nothing?",
		    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	assert_hmac(key, sizeof(key), "Test Using Larger Than Block-Size Key - Hash Key First",
		    "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_hmac),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
