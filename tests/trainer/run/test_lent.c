/* Batches that posted work reads: the host does not wait for each batch, and no batch is refilled while it is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/file.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/run/session/session.h"
#include "trainer/run/step/lent.h"

#define YAML                                                                                     \
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

static bool hold;

static enum ct_status held(const void *args)
{
	(void)args;
	return hold ? CT_INPROGRESS : CT_OK;
}

struct rig {
	struct ct_config *cfg;
	struct ct_session s;
	ct_loader *loader;
	struct ct_lent lent;
};

static void open_rig(struct rig *r, const char *device, int max, int64_t timeout_ns)
{
	struct ct_config_set set = {"device", device, "test"};
	struct ct_loader_opts lo;

	*r = (struct rig){0};
	assert_int_equal(ct_file_replace(in_tmpdir("c.yaml"), YAML, strlen(YAML)), CT_OK);
	assert_int_equal(ct_config_load(in_tmpdir("c.yaml"), &set, 1, &r->cfg), CT_OK);
	assert_int_equal(ct_session_create(r->cfg, NULL, true, &r->s), CT_OK);
	ct_plan_loader_opts(r->cfg, &r->s.plan, ct_dataset_info(r->s.data.train), true, 0, 1, &lo);
	lo.device = r->s.device;
	lo.max_out = ct_lent_max(r->s.device, (uint64_t)max - 1);
	assert_int_equal(lo.max_out, max);
	assert_int_equal(ct_loader_create(r->s.data.train, &lo, &r->loader), CT_OK);
	assert_int_equal(ct_lent_init(&r->lent, r->loader, ct_engine_stream(r->s.engine), max, timeout_ns), CT_OK);
}

static void close_rig(struct rig *r)
{
	ct_loader_destroy(r->loader);
	ct_session_destroy(&r->s, false);
	ct_config_destroy(r->cfg);
}

static int n_finished, slots[12];

/* The work that reads the batch must have finished. */
static void note_finished(void *user, int slot, const struct ct_loader_batch *b)
{
	(void)user;
	assert_int_equal(b->n, 4);
	assert_int_equal(slot, slots[n_finished]);
	assert_true(n_read > n_finished);
	n_finished++;
}

static void check(const char *device, bool async, int max)
{
	struct rig r;

	open_rig(&r, device, max, CT_FOREVER);
	assert_int_equal(ct_lent_max(r.s.device, UINT64_MAX), async ? CT_LENT_MAX : 1);
	n_read = n_wrong = n_finished = 0;
	r.lent.finished = note_finished;
	for (int i = 0; i < 12; i++) {
		struct ct_loader_batch *b;
		struct reader reader;

		assert_int_equal(ct_lent_next(&r.lent, &b), CT_OK);
		assert_int_equal(b->n, 4);
		slots[i] = ct_lent_slot(&r.lent);
		reader.x = b->x;
		memcpy(reader.expected, b->x, sizeof(reader.expected));
		assert_int_equal(ct_stream_run(ct_engine_stream(r.s.engine), read_batch, &reader, sizeof(reader)),
				 CT_OK);
		assert_int_equal(ct_lent_posted(&r.lent), CT_OK);
		if (!async)
			assert_int_equal(n_read, i + 1);
		else if (i < max - 1)
			assert_int_equal(n_read, 0);
		else
			assert_true(n_read >= i + 2 - max);
	}
	assert_int_equal(ct_lent_finish(&r.lent), CT_OK);
	assert_int_equal(n_read, 12);
	assert_int_equal(n_finished, 12);
	ct_lent_release(&r.lent);
	assert_int_equal(n_wrong, 0);
	close_rig(&r);
}

static void test_row_123_cpu(void **state)
{
	(void)state;
	check("cpu", false, 1);
}

static void test_lazy(void **state)
{
	(void)state;
	check("lazy", true, 2);
	check("lazy", true, 4);
	check("lazy", true, 7);
}

/* Work that waits for another rank forever. */
static void test_timeout(void **state)
{
	struct ct_loader_batch *b;
	struct rig r;

	(void)state;
	hold = true;
	open_rig(&r, "lazy", 2, 10 * CT_MS);
	assert_int_equal(ct_lent_next(&r.lent, &b), CT_OK);
	assert_int_equal(ct_stream_run(ct_engine_stream(r.s.engine), held, &r, sizeof(r.cfg)), CT_OK);
	assert_int_equal(ct_lent_posted(&r.lent), CT_OK);
	assert_int_equal(ct_lent_next(&r.lent, &b), CT_OK);
	assert_int_equal(ct_lent_posted(&r.lent), CT_TIMEOUT);
	assert_non_null(strstr(ct_error_message(), "waited 0.01 s for the posted work that reads a batch"));
	hold = false;
	ct_lent_release(&r.lent);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_row_123_cpu),
		cmocka_unit_test(test_lazy),
		cmocka_unit_test(test_timeout),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
