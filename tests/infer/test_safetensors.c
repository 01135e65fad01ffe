#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/sha256.h"
#include "tests/infer/safetensors_check.h"
#include "tests/trainer/tmpdir.h"

static enum ct_status fill(void *user, int i, float *out)
{
	const struct ct_tensor_desc *t = user;

	for (size_t k = 0; k < ct_tensor_n(&t[i]); k++)
		out[k] = (float)(1000 * i) + (float)k;
	return CT_OK;
}

static const float seven[7] = {0, -0.0f, 1e-40f, 3.4e38f, INFINITY, -1, 7};
static const struct ct_tensor_desc three[] = {
	{"fc.weight", 2, {3, 5}, NULL},
	{"given", 1, {7}, seven},
	{"a scalar \"quoted\" \xc3\xa9", 0, {0}, NULL},
	{"empty", 2, {0, 4}, NULL},
};

static void write_three(const char *path)
{
	const char *const meta[] = {"format", "pt", "who", "test", NULL};
	char sha[65], again[65];
	struct ct_sha256 h;
	uint64_t bytes;
	char *data;
	size_t len;

	assert_ok(ct_safetensors_write(path, three, 4, fill, (void *)(uintptr_t)three, meta, sha, &bytes));
	assert_ok(ct_file_read(path, 1 << 20, &data, &len));
	assert_int_equal(len, bytes);
	ct_sha256_init(&h);
	ct_sha256_update(&h, data, len);
	ct_sha256_final_hex(&h, again);
	assert_string_equal(sha, again);
	/* Data is aligned for readers that map the file. */
	assert_int_equal((uint64_t)(unsigned char)data[0] % 64, 56);
	ct_free(data);
}

static void test_round_trip(void **state)
{
	const char *path = in_tmpdir("three.safetensors");
	struct ct_tensor_desc d;
	ct_safetensors *s;
	const char *dtype;
	float out[15];
	int i;

	(void)state;
	write_three(path);
	assert_ok(ct_safetensors_open(path, &s));
	assert_int_equal(ct_safetensors_count(s), 4);
	assert_string_equal(ct_safetensors_metadata(s, "who"), "test");
	assert_null(ct_safetensors_metadata(s, "nobody"));
	i = ct_safetensors_find(s, "fc.weight");
	assert_int_equal(i, 0);
	ct_safetensors_at(s, i, &d, &dtype);
	assert_string_equal(dtype, "F32");
	assert_int_equal(d.ndim, 2);
	assert_int_equal(d.dims[0], 3);
	assert_int_equal(d.dims[1], 5);
	assert_ok(ct_safetensors_read(s, i, out, 15));
	assert_true(out[0] == 0 && out[14] == 14);
	i = ct_safetensors_find(s, "given");
	assert_ok(ct_safetensors_read(s, i, out, 7));
	assert_memory_equal(out, seven, sizeof(seven));
	i = ct_safetensors_find(s, three[2].name);
	ct_safetensors_at(s, i, &d, NULL);
	assert_int_equal(d.ndim, 0);
	assert_ok(ct_safetensors_read(s, i, out, 1));
	assert_true(out[0] == 2000);
	i = ct_safetensors_find(s, "empty");
	assert_true(i >= 0);
	assert_ok(ct_safetensors_read(s, i, out, 0));
	assert_int_equal(ct_safetensors_find(s, "absent"), -1);
	assert_int_equal(ct_safetensors_find(s, ""), -1);
	ct_safetensors_close(s);
	assert_int_equal(unlink(path), 0);
}

/* A file of this header and n_data bytes of data counting up. */
static size_t build(uint8_t *buf, const char *header, size_t n_data)
{
	uint64_t len = strlen(header);

	memcpy(buf, &len, 8);
	memcpy(buf + 8, header, len);
	for (size_t i = 0; i < n_data; i++)
		buf[8 + len + i] = (uint8_t)(i + 1);
	return 8 + len + n_data;
}

static void test_malformed(void **state)
{
	static const struct {
		const char *header;
		size_t n_data;
		const char *says; /* NULL: fine */
	} cases[] = {
		{"{}", 0, NULL},
		{"{}  \n ", 0, NULL},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", 4, NULL},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},\"__metadata__\":{}}", 1, NULL},
		{"{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
		 "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		 2, NULL},
		{"", 0, "not a JSON object"},
		{"[]", 0, "not a JSON object"},
		{" {}", 0, "not a JSON object"},
		{"{", 0, "not valid JSON"},
		{"{}x", 0, "not valid JSON"},
		{"{}", 1, "1 bytes after the last tensor"},
		{"{\"a\":1}", 0, "not described by an object"},
		{"{\"a\":{}}", 0, "has no dtype"},
		{"{\"a\":{\"dtype\":5}}", 0, "has no dtype"},
		{"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown element type"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no data_offsets"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "no data_offsets"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "no data_offsets"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}", 8, "no data_offsets"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "no data_offsets"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775808]}}", 8,
		 "not valid JSON"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "is stored at bytes 8 to 0"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "of 7 bytes of data"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8,
		 "of 8 bytes of data"},
		{"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "has no shape"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "has no shape"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", 8, "not an integer"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "not an integer"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "its shape needs 12"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}", 12, "its shape needs 8"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "9 dimensions"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
		 "larger than any"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4,
		 "larger than any"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
		 "larger than any"},
		{"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "1 to 1024 bytes"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
		 8, "not valid JSON"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		 12, "\"b\" overlaps"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
		 8, "\"b\" overlaps"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		 "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
		 12, "\"b\" starts 4 bytes after"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "\"a\" starts 4 bytes after"},
		{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8,
		 "4 bytes after the last tensor"},
		{"{\"__metadata__\":[]}", 0, "is not an object"},
		{"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
		{"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not valid JSON"},
		{"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "not valid JSON"},
		{"{\"\\u001b[2J\":{}}", 0, "tensor \"\\x1b[2J\" has no dtype"},
	};
	uint8_t buf[512];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		size_t len = build(buf, cases[i].header, cases[i].n_data);

		print_message("%s\n", cases[i].header);
		if (cases[i].says)
			assert_fails(safetensors_check(buf, len), CT_DATA, cases[i].says);
		else
			assert_ok(safetensors_check(buf, len));
	}
}

static void test_lengths(void **state)
{
	uint8_t buf[64] = {0};

	(void)state;
	assert_fails(safetensors_check(buf, 0), CT_DATA, "only 0 bytes");
	assert_fails(safetensors_check(buf, 7), CT_DATA, "only 7 bytes");
	assert_fails(safetensors_check(buf, 8), CT_DATA, "not a JSON object");
	buf[0] = 1;
	assert_fails(safetensors_check(buf, 8), CT_DATA, "beyond the end of the file");
	buf[3] = 2;
	assert_fails(safetensors_check(buf, 8), CT_DATA, "exceeds the limit");
	memset(buf, 0xff, 8);
	assert_fails(safetensors_check(buf, 8), CT_DATA, "exceeds the limit");
}

/* Every prefix and every flipped bit of the header of a real file: an answer, never a crash; and a shortened file never
 * passes. */
static void test_damage(void **state)
{
	const char *path = in_tmpdir("damage.safetensors");
	size_t len, header;
	char *data;

	(void)state;
	write_three(path);
	assert_ok(ct_file_read(path, 1 << 20, &data, &len));
	header = 8 + (size_t)(unsigned char)data[0] + 256 * (size_t)(unsigned char)data[1];
	assert_ok(safetensors_check((uint8_t *)data, len));
	for (size_t n = 0; n < len; n++)
		assert_int_equal(safetensors_check((uint8_t *)data, n), CT_DATA);
	for (size_t bit = 0; bit < 8 * header; bit++) {
		enum ct_status st;

		data[bit / 8] ^= (char)(1 << bit % 8);
		st = safetensors_check((uint8_t *)data, len);
		/* A flip within a name or the padding can leave a well-formed header: the checksum is for that. */
		assert_true(st == CT_OK || st == CT_DATA);
		data[bit / 8] ^= (char)(1 << bit % 8);
	}
	ct_free(data);
	assert_int_equal(unlink(path), 0);
}

static void test_other_types(void **state)
{
	static const char header[] = "{\"bf\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
				     "\"d\":{\"dtype\":\"F64\",\"shape\":[3],\"data_offsets\":[4,28]},"
				     "\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[28,40]},"
				     "\"l\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[40,48]},"
				     "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[48,49]}}";
	static const uint16_t bf[2] = {0x3f80, 0xc000}, h[6] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x83ff, 0x7bff};
	static const double d[3] = {1.5, -1e300, 0.1};
	static const int64_t l = -12345678901;
	const char *path = in_tmpdir("types.safetensors");
	uint8_t buf[600];
	size_t len = build(buf, header, 49), at = len - 49;
	ct_safetensors *s;
	float out[6];

	(void)state;
	memcpy(buf + at, bf, 4);
	memcpy(buf + at + 4, d, 24);
	memcpy(buf + at + 28, h, 12);
	memcpy(buf + at + 40, &l, 8);
	assert_ok(ct_file_replace(path, buf, len));
	assert_ok(ct_safetensors_open(path, &s));
	assert_ok(ct_safetensors_read(s, ct_safetensors_find(s, "bf"), out, 2));
	assert_true(out[0] == 1 && out[1] == -2);
	assert_ok(ct_safetensors_read(s, ct_safetensors_find(s, "d"), out, 3));
	assert_true(out[0] == 1.5f && out[1] == -INFINITY && out[2] == 0.1f);
	assert_ok(ct_safetensors_read(s, ct_safetensors_find(s, "h"), out, 6));
	assert_true(out[0] == 1 && out[1] == -2 && out[2] == 0x1p-24f && out[3] == INFINITY &&
		    out[4] == -1023 * 0x1p-24f && out[5] == 65504);
	assert_ok(ct_safetensors_read(s, ct_safetensors_find(s, "l"), out, 1));
	assert_true(out[0] == -12345678901.0f);
	assert_fails(ct_safetensors_read(s, ct_safetensors_find(s, "u"), out, 1), CT_UNSUPPORTED, "element type U8");
	ct_safetensors_close(s);
	assert_int_equal(unlink(path), 0);
}

static void test_not_files(void **state)
{
	ct_safetensors *s;

	(void)state;
	assert_fails(ct_safetensors_open(in_tmpdir("absent"), &s), CT_NOT_FOUND, "absent");
	assert_fails(ct_safetensors_open(tmpdir, &s), CT_DATA, "not a regular file");
	assert_int_equal(mkfifo(in_tmpdir("pipe"), 0600), 0);
	assert_fails(ct_safetensors_open(in_tmpdir("pipe"), &s), CT_DATA, "not a regular file");
	assert_int_equal(unlink(in_tmpdir("pipe")), 0);
}

static enum ct_status fill_fails(void *user, int i, float *out)
{
	(void)user;
	(void)i;
	(void)out;
	return CT_FAIL(CT_DEVICE, "no tensor today");
}

static void test_write_fails(void **state)
{
	const char *path = in_tmpdir("new.safetensors");
	struct ct_tensor_desc big = {"big", 1, {1 << 20}, NULL};
	struct ct_tensor_desc twice[2] = {{"a", 1, {7}, seven}, {"a", 1, {7}, seven}};
	struct rlimit was, small;
	uint64_t bytes;
	char sha[65];

	(void)state;
	assert_fails(ct_safetensors_write(path, three, 4, fill_fails, NULL, NULL, sha, &bytes), CT_DEVICE,
		     "no tensor today");
	assert_false(ct_file_exists(path));
	assert_fails(ct_safetensors_write(in_tmpdir("no/folder"), three, 1, fill, NULL, NULL, sha, &bytes), CT_IO,
		     "no/folder");
	assert_fails(ct_safetensors_write(path, twice, 2, fill, twice, NULL, sha, &bytes), CT_BUG, "duplicate name");
	/* The same error path as a full disk. */
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = (struct rlimit){65536, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_fails(ct_safetensors_write(path, &big, 1, fill, &big, NULL, sha, &bytes), CT_IO, "new.safetensors");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_false(ct_file_exists(path));
	/* Never over something that is there. */
	write_three(path);
	assert_fails(ct_safetensors_write(path, three, 1, fill, NULL, NULL, sha, &bytes), CT_IO, "cannot create");
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_lengths),     cmocka_unit_test(test_damage),
		cmocka_unit_test(test_other_types), cmocka_unit_test(test_not_files),
		cmocka_unit_test(test_write_fails),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
