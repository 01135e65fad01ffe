/* Event files byte by byte: checksums and framing, and the protobuf messages, which a decoder in this test reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/run/metrics/tb_events_impl.h"

static void test_crc(void **state)
{
	uint8_t block[32];

	(void)state;
	assert_int_equal(ct__crc32c("", 0), 0);
	assert_int_equal(ct__crc32c("123456789", 9), 0xe3069283);
	/* RFC 3720, B.4. */
	memset(block, 0, sizeof(block));
	assert_int_equal(ct__crc32c(block, 32), 0x8a9136aa);
	memset(block, 0xff, sizeof(block));
	assert_int_equal(ct__crc32c(block, 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		block[i] = (uint8_t)i;
	assert_int_equal(ct__crc32c(block, 32), 0x46dd794e);
	/* ((crc >> 15) | (crc << 17)) + 0xa282ead8 */
	assert_int_equal(ct__crc32c_masked("123456789", 9), 0xc78ab0e5);
}

struct event {
	double wall;
	uint64_t step;
	char version[32];
	int session;
	int n;
	struct {
		char tag[64];
		float value;
	} scalars[16];
};

static uint64_t varint(const uint8_t **p)
{
	uint64_t v = 0;

	for (int shift = 0;; shift += 7) {
		uint8_t b = *(*p)++;

		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
}

static void decode_value(const uint8_t *p, const uint8_t *end, struct event *e)
{
	while (p < end) {
		uint64_t key = varint(&p), len;

		if (key == (1 << 3 | 2)) {
			len = varint(&p);
			assert_true(len < 64);
			memcpy(e->scalars[e->n].tag, p, len);
			p += len;
		} else {
			assert_int_equal(key, 2 << 3 | 5);
			memcpy(&e->scalars[e->n].value, p, 4);
			p += 4;
		}
	}
	e->n++;
}

static void decode_event(const uint8_t *p, const uint8_t *end, struct event *e)
{
	memset(e, 0, sizeof(*e));
	while (p < end) {
		uint64_t key = varint(&p), len;
		const uint8_t *stop;

		switch (key) {
		case 1 << 3 | 1:
			memcpy(&e->wall, p, 8);
			p += 8;
			break;
		case 2 << 3 | 0:
			e->step = varint(&p);
			break;
		case 3 << 3 | 2:
			len = varint(&p);
			memcpy(e->version, p, len);
			p += len;
			break;
		case 5 << 3 | 2:
			len = varint(&p);
			for (stop = p + len; p < stop; p += len) {
				assert_int_equal(varint(&p), 1 << 3 | 2);
				len = varint(&p);
				decode_value(p, p + len, e);
			}
			break;
		case 7 << 3 | 2:
			len = varint(&p);
			assert_int_equal(len, 2);
			assert_int_equal(p[0], 1 << 3 | 0);
			e->session = p[1];
			p += 2;
			break;
		default:
			fail_msg("unexpected field key %llu", (unsigned long long)key);
		}
	}
	assert_ptr_equal(p, end);
}

/* The record at *p, its checksums compared. */
static void next_event(const uint8_t **p, struct event *e)
{
	uint64_t len;
	uint32_t crc;

	memcpy(&len, *p, 8);
	memcpy(&crc, *p + 8, 4);
	assert_int_equal(crc, ct__crc32c_masked(*p, 8));
	memcpy(&crc, *p + 12 + len, 4);
	assert_int_equal(crc, ct__crc32c_masked(*p + 12, len));
	decode_event(*p + 12, *p + 12 + len, e);
	*p += 16 + len;
}

static char *only_file(const char *folder, size_t expected)
{
	char **names, *path;
	size_t n;

	assert_ok(ct_dir_list(folder, &names, &n));
	assert_int_equal(n, expected);
	assert_true(strncmp(names[n - 1], "events.out.tfevents.", 20) == 0);
	path = ct_path_join(folder, names[n - 1]);
	ct_dir_list_free(names, n);
	return path;
}

static void test_file(void **state)
{
	static const struct ct_tb_scalar two[] = {{"train/loss", 0.25}, {"train/lr", NAN}};
	char big_tag[64];
	struct ct_tb_scalar many[16];
	const uint8_t *p;
	struct event e;
	char *path, *data;
	size_t len;
	ct_tb *tb;

	(void)state;
	memset(big_tag, 't', 63);
	big_tag[63] = '\0';
	for (int i = 0; i < 16; i++)
		many[i] = (struct ct_tb_scalar){big_tag, i};
	assert_ok(ct__tb_open(in_tmpdir("tb"), 0, &tb));
	assert_ok(ct__tb_scalars(tb, 300, two, 2));
	assert_ok(ct__tb_scalars(tb, (uint64_t)1 << 40, many, 16));
	ct__tb_close(tb);
	path = only_file(in_tmpdir("tb"), 1);
	assert_ok(ct_file_read(path, 1 << 20, &data, &len));
	p = (const uint8_t *)data;
	next_event(&p, &e);
	assert_string_equal(e.version, "brain.Event:2");
	assert_true(e.wall > 1.6e9);
	next_event(&p, &e);
	assert_int_equal(e.step, 300);
	assert_int_equal(e.n, 2);
	assert_string_equal(e.scalars[0].tag, "train/loss");
	assert_true(e.scalars[0].value == 0.25f && isnan(e.scalars[1].value));
	next_event(&p, &e);
	assert_true(e.step == (uint64_t)1 << 40);
	assert_int_equal(e.n, 16);
	assert_string_equal(e.scalars[15].tag, big_tag);
	assert_true(e.scalars[15].value == 15);
	assert_ptr_equal(p, (uint8_t *)data + len);
	ct_free(data);
	ct_free(path);
}

static void test_resume(void **state)
{
	const uint8_t *p;
	struct event e;
	char *path, *data;
	size_t len;
	ct_tb *first, *second;

	(void)state;
	/* Two in one second do not share a file. */
	assert_ok(ct__tb_open(in_tmpdir("twice"), 0, &first));
	assert_ok(ct__tb_open(in_tmpdir("twice"), 41, &second));
	ct__tb_close(first);
	ct__tb_close(second);
	path = only_file(in_tmpdir("twice"), 2);
	assert_ok(ct_file_read(path, 1 << 20, &data, &len));
	p = (const uint8_t *)data;
	next_event(&p, &e);
	next_event(&p, &e);
	assert_int_equal(e.session, 1);
	assert_int_equal(e.step, 42);
	ct_free(data);
	ct_free(path);
}

static void test_unwritable(void **state)
{
	ct_tb *tb;

	(void)state;
	assert_ok(ct_file_replace(in_tmpdir("file"), "x", 1));
	assert_fails(ct__tb_open(in_tmpdir("file/tb"), 0, &tb), CT_IO, "file");
}

/* A record for which there is no room leaves nothing behind, and later records can be read. */
static void test_disk_full(void **state)
{
	static const struct ct_tb_scalar loss = {"loss", 0.5};
	struct rlimit was, small;
	struct event e;
	uint8_t *data;
	size_t len;
	ct_tb *tb;

	(void)state;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = (struct rlimit){4096, was.rlim_max};
	char *value = test_calloc(1, 8192);
	assert_ok(ct__tb_open(in_tmpdir("full"), 0, &tb));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	enum ct_status st = ct__tb_value(tb, 1, value, 8192);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_fails(st, CT_IO, "tfevents");
	assert_ok(ct__tb_scalars(tb, 2, &loss, 1));
	ct__tb_close(tb);
	char *path = only_file(in_tmpdir("full"), 1);
	assert_ok(ct_file_read(path, 1 << 20, (char **)&data, &len));
	const uint8_t *p = data;
	next_event(&p, &e);
	next_event(&p, &e);
	assert_int_equal(e.step, 2);
	assert_ptr_equal(p, data + len);
	ct_free(data);
	ct_free(path);
	test_free(value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),        cmocka_unit_test(test_file),      cmocka_unit_test(test_resume),
		cmocka_unit_test(test_unwritable), cmocka_unit_test(test_disk_full),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
