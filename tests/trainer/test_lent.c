/* Batches that posted work reads: the host does not wait for each batch, and no batch is refilled while it is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/file.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/loop/lent.h"
#include "trainer/loop/session.h"

#define YAML                                                                          \
	"model: {name: mlp, hidden: [8]}\ntrain: {epochs: 1, engine: ref}\nbatch: {global: 4}\n" \
	"data: {name: synthetic, n_train: 64, n_val: 8, shape: [1, 4, 4]}\n"

static int n_read, n_wrong;

struct reader {
	const uint8_t *x;
	uint8_t expected[4 * 16];
};

static enum ct_status read_batch(const void *args)
{
	const struct reader *r = args;

	n_read++;
	n_wrong += memcmp(r->x, r->expected, sizeof(r->expected)) != 0;
	return CT_OK;
}

static void check(const char *device, bool async)
{
	struct ct_config_set set = {"device", device, "test"};
	struct ct_loader_opts lo;
	struct ct_session s = {0};
	struct ct_config *cfg;
	ct_loader *loader;
	struct ct_lent lent;

	assert_int_equal(ct_file_replace(in_tmpdir("c.yaml"), YAML, strlen(YAML)), CT_OK);
	assert_int_equal(ct_config_load(in_tmpdir("c.yaml"), &set, 1, &cfg), CT_OK);
	if (ct_session_create(cfg, NULL, true, &s) == CT_UNSUPPORTED) {
		ct_error_clear();
		ct_config_destroy(cfg);
		skip(); /* built without the device lazy */
	}
	assert_int_equal(ct_error_status(), CT_OK);
	ct_plan_loader_opts(cfg, &s.plan, ct_dataset_info(s.train), true, 0, 1, &lo);
	lo.device = s.device;
	lo.max_out = ct_lent_max(s.device);
	assert_int_equal(ct_loader_create(s.train, &lo, &loader), CT_OK);
	assert_int_equal(ct_lent_init(&lent, loader, ct_engine_stream(s.engine)), CT_OK);
	assert_int_equal(lent.max, async ? CT_LENT_MAX : 1);
	n_read = n_wrong = 0;
	for (int i = 0; i < 12; i++) {
		struct ct_loader_batch *b;
		struct reader r;

		assert_int_equal(ct_lent_next(&lent, &b), CT_OK);
		assert_int_equal(b->n, 4);
		r.x = b->x;
		memcpy(r.expected, b->x, sizeof(r.expected));
		assert_int_equal(ct_stream_run(ct_engine_stream(s.engine), read_batch, &r, sizeof(r)), CT_OK);
		assert_int_equal(ct_lent_posted(&lent), CT_OK);
		if (!async)
			assert_int_equal(n_read, i + 1);
		else if (i < CT_LENT_MAX - 1)
			assert_int_equal(n_read, 0);
		else
			assert_true(n_read >= i + 2 - CT_LENT_MAX);
	}
	ct_lent_release(&lent);
	assert_int_equal(n_read, 12);
	assert_int_equal(n_wrong, 0);
	ct_loader_destroy(loader);
	ct_session_destroy(&s, false);
	ct_config_destroy(cfg);
}

static void test_cpu(void **state)
{
	(void)state;
	check("cpu", false);
}

static void test_lazy(void **state)
{
	(void)state;
	check("lazy", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu),
		cmocka_unit_test(test_lazy),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
