/* The loader with the real shards in ../shared/data, which are not part of the project. The test is skipped if they are
 * missing. */
#include "tests/data/fixture.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash/sha256.h"
#include "tests/data/batches.h"

enum { N = 7 * 41 + 33, BATCH = 48, SIDE = 32, STEPS = (N + BATCH - 1) / BATCH };

static ct_dataset *open_shards(const char *dir, const char *path, const char *index_dir)
{
	struct ct_dataset_spec spec = {
		.name = "shards", .dir = dir, .path = path, .index_dir = index_dir, .train = true};
	ct_dataset *d;

	assert_ok(ct_dataset_open(&spec, &d));
	return d;
}

static struct ct_loader_opts options(const ct_dataset *d, uint32_t world, uint32_t rank, int n_threads)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);

	return (struct ct_loader_opts){
		.sampler = {.n = info->n,
			    .global_batch = BATCH,
			    .world = world,
			    .rank = rank,
			    .accumulate = 1,
			    .seed = 21,
			    .shuffle = true,
			    .window = 2,
			    .n_groups = info->n_groups,
			    .group_first = info->group_first},
		.transform = {.h = SIDE, .w = SIDE, .crop = CT_CROP_RANDOM, .augment = {.flip = true, .hue = 0.1f}},
		.mixup = 0.2f,
		.cutmix = 1,
		.n_threads = n_threads,
	};
}

/* Digest of each step's rows of all ranks in order: pixels, labels, shares, ids. From `step` of epoch 2 to its end. */
static void digest_epoch(const ct_dataset *d, uint32_t world, int n_threads, uint64_t step, char hex[STEPS][65])
{
	struct ct_sha256 h[STEPS];

	for (uint64_t i = step; i < STEPS; i++)
		ct_sha256_init(&h[i]);
	for (uint32_t rank = 0; rank < world; rank++) {
		struct ct_loader_opts o = options(d, world, rank, n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		assert_ok(ct_loader_create(d, &o, &l));
		assert_ok(ct_loader_seek(l, 2, step));
		do {
			assert_ok(next_batch(l, &b));
			for (uint32_t i = 0; i < b.n; i++) {
				ct_sha256_update(&h[b.step], (const uint8_t *)b.x + (size_t)i * SIDE * SIDE * 3,
						 SIDE * SIDE * 3);
				ct_sha256_update(&h[b.step], &b.samples[i], sizeof(b.samples[i]));
				ct_sha256_update(&h[b.step], &b.labels[i], sizeof(b.labels[i]));
				ct_sha256_update(&h[b.step], &b.labels_b[i], sizeof(b.labels_b[i]));
				ct_sha256_update(&h[b.step], &b.mix[i], sizeof(b.mix[i]));
			}
		} while (!b.last_of_epoch);
		ct_loader_destroy(l);
	}
	for (uint64_t i = step; i < STEPS; i++)
		ct_sha256_final_hex(&h[i], hex[i]);
}

/* Resumed in mid-epoch, on other numbers of threads and ranks: to the bit. */
static void test_same_bytes(void **state)
{
	char *dir = shared_path("data/imagenet-wds"), *index = temp_dir();
	char one[STEPS][65], other[STEPS][65];
	ct_dataset *d;

	(void)state;
	if (!dir) {
		temp_dir_remove(index);
		skip();
	}
	d = open_shards(dir, "imagenet-train-{000000..000007}.tar", index);
	assert_int_equal(ct_dataset_info(d)->n, N);
	assert_int_equal(ct_dataset_info(d)->n_groups, 8);
	digest_epoch(d, 1, 2, 0, one);
	digest_epoch(d, 3, 1, 0, other);
	assert_memory_equal(one, other, sizeof(one));
	digest_epoch(d, 1, 3, 4, other);
	assert_memory_equal(one[4], other[4], sizeof(one) - 4 * sizeof(one[0]));
	digest_epoch(d, 5, 0, 6, other);
	assert_memory_equal(one[6], other[6], sizeof(one[0]));
	ct_dataset_close(d);
	temp_dir_remove(index);
	ct_free(dir);
}

static char *copy_shard(const char *from, const char *dir, const char *name)
{
	char *source = ct_path_join(from, name), *path = ct_path_join(dir, name), *data;
	size_t len;

	assert_ok(ct_file_read(source, 64 << 20, &data, &len));
	assert_ok(ct_file_replace(path, data, len));
	ct_free(data);
	ct_free(source);
	return path;
}

static void count_bad(void *user, uint32_t sample, const char *text)
{
	int *n = user;

	assert_true(sample >= 41);
	assert_non_null(strstr(text, "imagenet-train-000001.tar"));
	(*n)++;
}

/* A shard that is cut short while the loader reads it: its samples are replaced, each named once, and all goes on. */
static void test_cut_short(void **state)
{
	char *shared = shared_path("data/imagenet-wds"), *dir = temp_dir(), *first, *second;
	struct ct_loader_batch b = {0};
	struct ct_loader_opts o;
	ct_loader *l;
	ct_dataset *d;
	int n_bad = 0;

	(void)state;
	if (!shared) {
		temp_dir_remove(dir);
		skip();
	}
	first = copy_shard(shared, dir, "imagenet-train-000000.tar");
	second = copy_shard(shared, dir, "imagenet-train-000001.tar");
	d = open_shards(dir, "imagenet-train-{000000..000001}.tar", dir);
	o = options(d, 1, 0, 2);
	o.bad = CT_BAD_REPLACE;
	o.max_bad = 41;
	o.on_bad = count_bad;
	o.user = &n_bad;
	assert_ok(ct_loader_create(d, &o, &l));
	assert_ok(next_batch(l, &b));
	assert_int_equal(n_bad, 0);
	assert_int_equal(truncate(second, 100000), 0);
	/* What was read ahead is past after a ring and an epoch. */
	for (int i = 0; i < 12; i++)
		assert_ok(next_batch(l, &b));
	for (int i = 0; i < 4; i++) {
		assert_ok(next_batch(l, &b));
		for (uint32_t k = 0; k < b.n; k++)
			assert_true(b.samples[k] < 41);
	}
	assert_int_equal(n_bad, 41);
	ct_loader_destroy(l);
	ct_dataset_close(d);
	ct_free(first);
	ct_free(second);
	ct_free(shared);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bytes),
		cmocka_unit_test(test_cut_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
