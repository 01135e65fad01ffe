/* The plan of a configuration with images: sizes by epoch, crops, limits on bad samples, stems, synchronized batch
 * norm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/plan_fixture.h"
#include "trainer/plan/run_plan.h"

static const uint32_t groups[] = {0, 100, 320};
static const struct ct_dataset_info shards = {.name = "shards",
					      .kind = CT_SAMPLE_ENCODED,
					      .n = 320,
					      .c = 3,
					      .n_classes = 1000,
					      .n_groups = 2,
					      .group_first = groups};
static const struct ct_dataset_info cifar = {.name = "cifar10",
					     .n = 320,
					     .c = 3,
					     .h = 32,
					     .w = 32,
					     .n_classes = 10,
					     .sample_bytes = 3072,
					     .in_memory = true};

static const char base[] = "model: {name: resnet18}\ndata: {name: shards}\ntrain: {epochs: 3}\n";

static enum ct_status plan_of(struct ct_config *c, const struct ct_dataset_info *info, uint32_t world,
			      struct ct_run_plan *p)
{
	enum ct_status st = ct_run_plan_make(c, world, info, info, p);

	ct_config_destroy(c);
	return st;
}

static void test_sizes(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("data.train.size=[[0,128],[10,160],[16,192]]"), &shards, 1, &p), CT_OK);
	assert_int_equal(p.n_sizes, 3);
	assert_int_equal(p.input.h, 128);
	assert_int_equal(ct_plan_input_at(&p, 9).w, 128);
	assert_int_equal(ct_plan_input_at(&p, 10).w, 160);
	assert_int_equal(ct_plan_input_at(&p, 100).h, 192);
	assert_int_equal(p.val_input.h, 192); /* the last */
	assert_true(p.transform.crop == CT_CROP_RANDOM && p.val_transform.crop == CT_CROP_CENTER && p.encoded);
	assert_int_equal(plan_of(LOAD("data.val.size=256", "data.val.resize=300"), &shards, 1, &p), CT_OK);
	assert_true(p.input.w == 224 && p.val_input.h == 256 && p.val_transform.resize == 300);
	assert_int_equal(plan_of(LOAD("data.name=cifar10"), &cifar, 1, &p), CT_OK);
	assert_true(p.n_sizes == 0 && p.input.h == 32 && p.val_input.w == 32 && p.transform.crop == CT_CROP_NONE);
	assert_int_equal(ct_plan_input_at(&p, 5).h, 32);
}

static void test_each_key_has_its_place(void **state)
{
	struct ct_dataset_spec spec;
	struct ct_loader_opts lo;
	struct ct_run_plan p;
	struct ct_config *c = LOAD("data.augment.area=0.25,0.5", "data.augment.ratio=0.5,2",
				   "data.augment.brightness=1", "data.augment.contrast=2", "data.augment.saturation=3",
				   "data.augment.hue=0.25", "data.augment.erasing=0.5", "data.augment.rand_augment=2",
				   "data.augment.rand_magnitude=7", "data.augment.mixup=0.125", "data.augment.cutmix=4",
				   "data.decode=fast", "data.exif=true", "data.max_pixels=1000", "data.workers=3");

	(void)state;
	assert_int_equal(ct_run_plan_make(c, 2, &shards, &shards, &p), CT_OK);
	assert_true(p.transform.area_min == 0.25f && p.transform.area_max == 0.5f);
	assert_true(p.transform.ratio_min == 0.5f && p.transform.ratio_max == 2);
	assert_true(p.transform.augment.brightness == 1 && p.transform.augment.contrast == 2);
	assert_true(p.transform.augment.saturation == 3 && p.transform.augment.hue == 0.25f);
	assert_true(p.transform.augment.erasing == 0.5f && p.transform.augment.rand_augment == 2);
	assert_true(p.transform.augment.rand_magnitude == 7 && p.transform.image.fast && p.transform.image.exif);
	assert_true(p.transform.image.max_pixels == 1000 && p.val_transform.image.max_pixels == 1000);
	ct_plan_loader_opts(c, &p, &shards, true, 1, 2, &lo);
	assert_true(lo.mixup == 0.125f && lo.cutmix == 4 && lo.bad == CT_BAD_REPLACE && lo.n_threads == 3);
	assert_true(lo.sampler.rank == 1 && lo.n_sizes == 1 && lo.max_bad == 4);
	ct_plan_loader_opts(c, &p, &shards, false, 1, 2, &lo);
	assert_true(lo.mixup == 0 && lo.cutmix == 0 && lo.bad == CT_BAD_DROP && lo.n_sizes == 0);
	assert_true(lo.transform.augment.brightness == 0 && !lo.sampler.shuffle);
	ct_config_destroy(c);
	c = LOAD("data.train=a*.tar", "data.val=b.tar", "data.index_dir=/i", "data.classes_file=/c", "data.classes=7");
	ct_plan_dataset_spec(c, true, &spec);
	assert_true(!strcmp(spec.path, "a*.tar") && !strcmp(spec.index_dir, "/i") && !strcmp(spec.classes, "/c"));
	assert_int_equal(spec.n_classes, 7);
	ct_plan_dataset_spec(c, false, &spec);
	assert_string_equal(spec.path, "b.tar");
	assert_true(p.net.recompute == CT_RECOMPUTE_NORMS);
	ct_config_destroy(c);
	c = LOAD("data.name=imagefolder", "data.labels=t.csv", "data.labels.class=y");
	ct_plan_dataset_spec(c, false, &spec);
	assert_true(!strcmp(spec.path, ".") && !strcmp(spec.labels, "t.csv") && !strcmp(spec.train_labels, "t.csv"));
	assert_true(!strcmp(spec.class_column, "y") && !spec.image_column && !spec.split_column);
	ct_config_destroy(c);
	c = LOAD("data.name=imagefolder", "data.labels=t.csv", "data.train=a", "data.val_labels=v.csv", "data.val=b");
	ct_plan_dataset_spec(c, true, &spec);
	assert_true(!strcmp(spec.path, "a") && !strcmp(spec.labels, "t.csv"));
	ct_plan_dataset_spec(c, false, &spec);
	assert_true(!strcmp(spec.path, "b") && !strcmp(spec.labels, "v.csv") && !strcmp(spec.train_labels, "t.csv"));
	ct_config_destroy(c);
	c = LOAD("precision=bf16", "train.recompute=blocks");
	assert_int_equal(ct_run_plan_make(c, 2, &shards, NULL, &p), CT_OK);
	assert_true(p.net.precision == CT_PRECISION_BF16 && p.net.recompute == CT_RECOMPUTE_BLOCKS);
	ct_plan_dataset_spec(c, true, &spec);
	assert_true(!spec.path && !spec.index_dir && !spec.classes && spec.n_classes == 0); /* the data says */
	ct_config_destroy(c);
}

/* A set that knows its classes needs no data.classes. */
static void test_cifar_classes(void **state)
{
	static const uint8_t records[2][2 + 3072] = {{0, 7}, {19, 99}};
	char dir[320];
	ct_dataset *d = NULL;

	(void)state;
	snprintf(dir, sizeof(dir), "data.dir=%s", tmpdir);
	struct ct_config *c = LOAD("data.name=cifar100", dir);
	assert_ok(ct_file_replace(in_tmpdir("train.bin"), records, sizeof(records)));
	assert_ok(ct_plan_open_data(c, true, NULL, &d));
	assert_int_equal(ct_dataset_info(d)->n_classes, 100);
	ct_dataset_close(d);
	ct_config_destroy(c);
}

static void test_shuffle(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("data.shuffle=window", "data.shuffle_window=2"), &shards, 1, &p), CT_OK);
	assert_true(p.train.shuffle && p.train.window == 2 && p.train.n_groups == 2 && p.train.group_first == groups);
	assert_int_equal(plan_of(LOAD("data.shuffle=none"), &shards, 1, &p), CT_OK);
	assert_true(!p.train.shuffle && p.train.window == 0);
	assert_int_equal(plan_of(LOAD("data.shuffle=true"), &shards, 1, &p), CT_OK);
	assert_true(p.train.shuffle && p.train.window == 0);
}

static void test_budget(void **state)
{
	static const struct {
		const char *set;
		uint64_t want;
	} cases[] = {{"data.max_bad=0", 0},
		     {"data.max_bad=3", 3},
		     {"data.max_bad=0.5", 160},
		     {"data.max_bad=0.001", 1},
		     {"data.max_bad=1", 1}};
	struct ct_run_plan p;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(plan_of(LOAD(cases[i].set), &shards, 1, &p), CT_OK);
		assert_int_equal(p.max_bad, cases[i].want);
		assert_int_equal(p.max_bad_val, cases[i].want);
	}
}

/* How many parameters the model has tells its stem: 7x7x3x64 or 3x3x3x64. */
static size_t stem_elems(struct ct_config *c, const struct ct_dataset_info *info)
{
	struct ct_run_plan p;
	ct_graph *g;
	size_t n;

	assert_int_equal(ct_run_plan_make(c, 1, info, NULL, &p), CT_OK);
	assert_int_equal(ct_plan_graph(c, info, p.input, &g), CT_OK);
	n = ct_graph_param(g, 0)->n;
	ct_graph_destroy(g);
	ct_config_destroy(c);
	return n;
}

static void test_stem(void **state)
{
	(void)state;
	assert_int_equal(stem_elems(LOAD("model.zero_gamma=true"), &shards), 7 * 7 * 3 * 64);
	assert_int_equal(stem_elems(LOAD("data.train.size=64"), &shards), 3 * 3 * 3 * 64);
	assert_int_equal(stem_elems(LOAD("data.train.size=[[0,64],[2,65]]"), &shards), 7 * 7 * 3 * 64);
	assert_int_equal(stem_elems(LOAD("data.train.size=64", "model.stem=imagenet"), &shards), 7 * 7 * 3 * 64);
	assert_int_equal(stem_elems(LOAD("data.name=cifar10"), &cifar), 3 * 3 * 3 * 64);
	assert_int_equal(stem_elems(LOAD("data.name=cifar10", "model.stem=imagenet"), &cifar), 7 * 7 * 3 * 64);
}

static void test_weights_for_all_sizes(void **state)
{
	static const char *const models[] = {"model.name=resnet18", "model.name=mlp"};
	static const enum ct_status want[] = {CT_OK, CT_CONFIG};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ct_config *c = LOAD(models[i], "data.train.size=[[0,32],[1,48]]");
		struct ct_run_plan p;
		ct_graph *g;

		assert_int_equal(ct_run_plan_make(c, 1, &shards, &shards, &p), CT_OK);
		assert_int_equal(ct_plan_graph(c, &shards, p.input, &g), CT_OK);
		assert_int_equal(ct_plan_check_sizes(c, &shards, &p, g), want[i]);
		ct_graph_destroy(g);
		ct_config_destroy(c);
	}
	assert_non_null(strstr(ct_error_message(), "fc1.weight"));
}

static enum ct_status checked(struct ct_config *c)
{
	enum ct_status st = ct_plan_check_model(c);

	ct_config_destroy(c);
	return st;
}

/* Before there is data: what it will be like is known, or does not matter. */
static void test_model_alone(void **state)
{
	static const char layers[] = "model.name=layers", seven[] = "model.layers=[conv2d 7 kernel=3, global_avg_pool]";

	(void)state;
	assert_ok(checked(LOAD("data.train.size=32")));
	assert_ok(checked(LOAD(layers, seven)));
	assert_ok(checked(LOAD(layers, seven, "data.classes=7")));
	assert_fails(checked(LOAD(layers, seven, "data.classes=8")), CT_CONFIG,
		     "test: error: model layers: the output of the last layer is 7x1x1, but the data needs 8 outputs");
	assert_fails(checked(LOAD(layers, seven, "data.name=cifar100")), CT_CONFIG, "100 outputs");
	assert_fails(checked(LOAD(layers, "model.layers=[conv2d 7 kernel=3, flatten, linear 5]", "data.val.size=256")),
		     CT_CONFIG, "depend on the image size: for 256x256");
	assert_fails(checked(LOAD("model.name=lenet", "data.train.size=8")), CT_CONFIG, "conv2");
	/* Only the files know the shape, and there are none; what does not depend on it would have to be told apart. */
	assert_ok(checked(LOAD(layers, seven, "data.name=idx")));
	assert_fails(checked(LOAD(layers, seven, "data.name=idx", "data.shape=[1, 28, 28]")), CT_CONFIG, "10 outputs");
}

/* Four images of 8 x w as an IDX file in the temporary directory, without labels. */
static void put_images(const char *name, uint8_t w)
{
	uint8_t file[16 + 4 * 8 * 16] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, w};

	assert_ok(ct_file_replace(in_tmpdir(name), file, 16 + 4 * 8 * (size_t)w));
}

/* Files that are there say what fits them. */
static void test_model_and_files(void **state)
{
	char dir[300];

	(void)state;
	snprintf(dir, sizeof(dir), "data.dir=%s", tmpdir);
#define IDX dir, "data.name=idx", "model.name=layers"
	put_images("train-images-idx3-ubyte", 8);
	assert_ok(checked(LOAD(IDX, "model.layers=[flatten, linear 10]")));
	assert_fails(checked(LOAD(IDX, "model.layers=[flatten, linear 7]")), CT_CONFIG, "10 outputs");
	assert_fails(checked(LOAD(IDX, "model.layers=[conv2d 4 kernel=9]")), CT_CONFIG,
		     "test: error: model layers: layer 1");
	assert_fails(checked(LOAD(IDX, "model.layers=[flatten, linear 10]", "data.shape=[1, 28, 28]")), CT_DATA,
		     "train-images-idx3-ubyte has images of 8 x 8, expected 28 x 28");
	put_images("t10k-images-idx3-ubyte", 9);
	assert_fails(checked(LOAD(IDX, "model.layers=[flatten, linear 10]")), CT_DATA,
		     "evaluation data is 1x8x9, but training data is 1x8x8");
	assert_ok(checked(LOAD(IDX, "model.layers=[flatten, linear 10]", "data.val=none")));
#undef IDX
}

/* 320 samples in batches of 48: the last of 32. Statistics over ranks need rows on all of them; a single rank needs no
 * other. */
static void test_sync_needs_rows(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("model.bn=sync", "batch.global=48"), &shards, 24, &p), CT_OK);
	assert_int_equal(plan_of(LOAD("model.bn=local", "batch.global=48"), &shards, 48, &p), CT_OK);
	assert_int_equal(plan_of(LOAD("model.bn=sync", "batch.global=48"), &shards, 48, &p), CT_CONFIG);
	assert_non_null(strstr(ct_error_message(), "(32 samples)"));
	/* Without batch norm there is nothing to wait for. */
	assert_int_equal(plan_of(LOAD("model.name=mlp", "model.bn=sync", "batch.global=48"), &shards, 48, &p), CT_OK);
	assert_int_equal(plan_of(LOAD("model.bn=sync", "batch.global=48", "data.drop_last=true"), &shards, 48, &p),
			 CT_OK);
	assert_int_equal(plan_of(LOAD("model.bn=sync", "batch.global=48", "train.accumulate=48"), &shards, 1, &p),
			 CT_OK);
}

static void test_evaluation_classes(void **state)
{
	struct ct_dataset_info val = shards;
	struct ct_run_plan p;
	struct ct_config *c = LOAD("data.workers=0");

	(void)state;
	val.n_classes = 1001;
	assert_int_equal(ct_run_plan_make(c, 1, &shards, &val, &p), CT_DATA);
	assert_non_null(strstr(ct_error_hint_text(), "data.classes"));
	val.n_classes = 999;
	assert_int_equal(ct_run_plan_make(c, 1, &shards, &val, &p), CT_OK);
	ct_config_destroy(c);
}

static void test_one_class(void **state)
{
	struct ct_dataset_info one = shards;
	struct ct_run_plan p;

	(void)state;
	one.n_classes = 1;
	assert_int_equal(plan_of(LOAD("data.dir=/d"), &one, 1, &p), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "shards in /d has only one class"));
	ct_error_clear();
	assert_int_equal(plan_of(LOAD("data.name=imagefolder"), &one, 1, &p), CT_DATA);
	assert_non_null(strstr(ct_error_hint_text(), "one level deeper"));
	ct_error_clear();
	one.n_classes = 2;
	assert_int_equal(plan_of(LOAD("data.name=imagefolder"), &one, 1, &p), CT_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_each_key_has_its_place),
		cmocka_unit_test(test_cifar_classes),
		cmocka_unit_test(test_shuffle),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_stem),
		cmocka_unit_test(test_weights_for_all_sizes),
		cmocka_unit_test(test_model_alone),
		cmocka_unit_test(test_model_and_files),
		cmocka_unit_test(test_sync_needs_rows),
		cmocka_unit_test(test_evaluation_classes),
		cmocka_unit_test(test_one_class),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
