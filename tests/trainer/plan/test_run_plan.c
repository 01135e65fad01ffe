/* The plan of a configuration: ranks, batch, steps, learning rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/cpu/features.h"
#include "base/thread.h"
#include "tests/trainer/plan_fixture.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/precision.h"
#include "trainer/plan/run_plan.h"

static const struct ct_dataset_info digits = {
	.name = "t", .n = 1000, .c = 1, .h = 4, .w = 4, .n_classes = 10, .sample_bytes = 16};

static const char base[] = "model: {name: mlp}\ndata: {name: synthetic}\ntrain: {epochs: 3}\n";

#define ELASTIC "launch.nodes=2..4", "launch.procs=1", "launch.restarts=1", "launch.master_addr=a"

static enum ct_status plan_of(struct ct_config *c, uint32_t world, struct ct_run_plan *p)
{
	enum ct_status st = ct_run_plan_make(c, world, &digits, NULL, p);

	ct_config_destroy(c);
	return st;
}

static void test_batch_is_cut_evenly(void **state)
{
	static const struct {
		const char *batch, *accumulate;
		uint32_t world, global, per_rank, micro;
	} cases[] = {
		{"batch.global=48", "train.accumulate=1", 1, 48, 48, 48},
		{"batch.global=48", "train.accumulate=1", 4, 48, 12, 12},
		{"batch.global=48", "train.accumulate=2", 4, 48, 12, 6},
		{"batch.per_rank=10", "train.accumulate=1", 3, 30, 10, 10},
		{"batch.per_rank=10", "train.accumulate=2", 3, 60, 20, 10},
	};
	struct ct_run_plan p;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(plan_of(LOAD(cases[i].batch, cases[i].accumulate), cases[i].world, &p), CT_OK);
		assert_int_equal(p.global_batch, cases[i].global);
		assert_int_equal(p.per_rank, cases[i].per_rank);
		assert_int_equal(p.micro_rows, cases[i].micro);
		assert_int_equal(p.net.batch, cases[i].micro);
		assert_int_equal(ct_sampler_max_rows(&p.train), cases[i].micro);
	}
	assert_int_equal(plan_of(LOAD("batch.global=50"), 3, &p), CT_CONFIG);
	assert_non_null(strstr(ct_error_hint_text(), "batch.global=51"));
	assert_int_equal(plan_of(LOAD("batch.global=6", "train.accumulate=4"), 2, &p), CT_CONFIG);
	assert_int_equal(plan_of(LOAD("batch.per_rank=1048576", "train.accumulate=4096"), 1024, &p), CT_CONFIG);
}

/* If the number of nodes may change, micro-batches are not larger than with all of them. */
static void test_accumulate_adapts(void **state)
{
	static const struct {
		const char *accumulate;
		uint32_t world, steps, micro;
	} cases[] = {
		{"train.accumulate=1", 4, 1, 12}, {"train.accumulate=1", 3, 2, 8}, {"train.accumulate=1", 2, 2, 12},
		{"train.accumulate=1", 1, 4, 12}, {"train.accumulate=3", 4, 3, 4}, {"train.accumulate=3", 3, 4, 4},
		{"train.accumulate=3", 1, 12, 4},
	};
	struct ct_run_plan p;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(plan_of(LOAD("batch.global=48", ELASTIC, cases[i].accumulate), cases[i].world, &p),
				 CT_OK);
		assert_int_equal(p.global_batch, 48);
		assert_int_equal(p.accumulate, cases[i].steps);
		assert_int_equal(p.micro_rows, cases[i].micro);
	}
	struct ct_config *c = LOAD("batch.global=35", ELASTIC);
	assert_int_equal(ct_plan_check_batch(c, 4), CT_CONFIG);
	assert_non_null(strstr(ct_error_message(), "the ranks of 2 to 4 nodes"));
	ct_config_destroy(c);
	c = LOAD("batch.global=33", ELASTIC); /* 3 nodes */
	assert_int_equal(ct_plan_check_batch(c, 4), CT_OK);
	ct_config_destroy(c);
}

static void test_steps(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("batch.global=48"), 2, &p), CT_OK);
	assert_int_equal(p.steps_per_epoch, 21);
	assert_int_equal(p.total_steps, 63);
	assert_int_equal(p.epochs, 3);
	assert_int_equal(plan_of(LOAD("batch.global=48", "data.drop_last=true"), 2, &p), CT_OK);
	assert_int_equal(p.total_steps, 60);
	assert_int_equal(plan_of(LOAD("batch.global=48", "train.max_steps=22"), 2, &p), CT_OK);
	assert_int_equal(p.total_steps, 22);
	assert_int_equal(p.epochs, 2);
	assert_int_equal(plan_of(LOAD("batch.global=48", "train.max_steps=1000000"), 2, &p), CT_OK);
	assert_int_equal(p.total_steps, 63);
	assert_int_equal(plan_of(LOAD("batch.global=48", "train.max_steps=1000000", "train.epochs=0"), 2, &p), CT_OK);
	assert_int_equal(p.total_steps, 1000000);
	assert_int_equal(plan_of(LOAD("batch.global=1001", "data.drop_last=true"), 1, &p), CT_CONFIG);
	assert_int_equal(plan_of(LOAD("batch.global=1001"), 1, &p), CT_OK);
	assert_int_equal(p.steps_per_epoch, 1);
}

static void test_learning_rate(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("batch.per_rank=64", "optim.lr=0.1"), 4, &p), CT_OK);
	assert_true(p.lr == 0.1);
	assert_int_equal(
		plan_of(LOAD("batch.per_rank=64", "optim.lr=0.1", "optim.lr_rule=linear", "optim.lr_base_batch=128"), 4,
			&p),
		CT_OK);
	assert_true(fabs(p.lr - 0.2) < 1e-15);
	assert_true(p.schedule.base_lr == p.lr);
}

static void test_schedule_in_steps(void **state)
{
	struct ct_run_plan p;

	(void)state;
	assert_int_equal(plan_of(LOAD("batch.global=48", "train.epochs=9", "schedule.name=multistep",
				      "schedule.milestones=[1.5, 4]", "schedule.warmup_epochs=0.5"),
				 2, &p),
			 CT_OK);
	assert_int_equal(p.schedule.n_milestones, 2);
	assert_int_equal(p.schedule.milestones[0], 32); /* 1.5 * 21, rounded */
	assert_int_equal(p.schedule.milestones[1], 84);
	assert_int_equal(p.schedule.warmup_steps, 11);
	assert_int_equal(plan_of(LOAD("batch.global=48", "schedule.warmup_steps=7"), 2, &p), CT_OK);
	assert_int_equal(p.schedule.warmup_steps, 7);
	assert_int_equal(plan_of(LOAD("batch.global=48", "schedule.name=step", "schedule.step_epochs=0.001"), 2, &p),
			 CT_OK);
	assert_int_equal(p.schedule.step_size, 1);
}

/* Every number has its own value, so that none can stand in another's place. */
static void test_each_key_has_its_place(void **state)
{
	struct ct_dataset_spec spec;
	struct ct_run_plan p;
	struct ct_config *c;

	(void)state;
	assert_int_equal(plan_of(LOAD("schedule.name=one_cycle", "schedule.warmup_start=0.25", "schedule.pct_start=0.5",
				      "schedule.div_factor=3", "schedule.final_div_factor=7", "optim.momentum=0.75",
				      "optim.nesterov=true", "optim.weight_decay=0.125", "optim.decay_norm_bias=false",
				      "optim.clip_norm=9", "model.init=kaiming", "run.seed=77"),
				 1, &p),
			 CT_OK);
	assert_int_equal(p.schedule.kind, CT_LR_ONE_CYCLE);
	assert_true(p.schedule.warmup_start == 0.25 && p.schedule.pct_start == 0.5);
	assert_true(p.schedule.div_factor == 3 && p.schedule.final_div_factor == 7);
	assert_true(p.optim.kind == CT_SGD && p.optim.momentum == 0.75 && p.optim.nesterov);
	assert_true(p.optim.weight_decay == 0.125 && !p.optim.decay_norm_bias && p.optim.clip_norm == 9);
	assert_true(p.init == CT_INIT_KAIMING && p.train.seed == 77 && p.net.seed == 77);
	assert_int_equal(plan_of(LOAD("schedule.name=poly", "schedule.min_lr=0.001", "schedule.power=2",
				      "optim.name=adamw", "optim.beta1=0.5", "optim.beta2=0.25", "optim.eps=0.0625"),
				 1, &p),
			 CT_OK);
	assert_true(p.schedule.kind == CT_LR_POLY && p.schedule.min_lr == 0.001 && p.schedule.power == 2);
	assert_true(p.optim.kind == CT_ADAMW && p.optim.beta1 == 0.5 && p.optim.beta2 == 0.25 && p.optim.eps == 0.0625);
	assert_int_equal(plan_of(LOAD("schedule.name=step", "schedule.gamma=0.5", "schedule.step_epochs=2",
				      "data.shuffle=false"),
				 1, &p),
			 CT_OK);
	assert_true(p.schedule.kind == CT_LR_STEP && p.schedule.gamma == 0.5 && !p.train.shuffle);
	assert_int_equal(p.schedule.step_size, 2 * p.steps_per_epoch);
	assert_int_equal(
		plan_of(LOAD("data.augment.crop_padding=3", "data.augment.flip=true", "data.augment.degrees=4",
			     "data.augment.translate=0.5", "data.augment.scale_min=0.75", "data.augment.scale_max=1.25",
			     "data.augment.shear=6", "data.mean=0.5", "data.std=0.25"),
			1, &p),
		CT_OK);
	assert_true(p.transform.augment.crop_padding == 3 && p.transform.augment.flip &&
		    p.transform.augment.degrees == 4);
	assert_true(p.transform.augment.translate == 0.5f && p.transform.augment.scale_min == 0.75f &&
		    p.transform.augment.scale_max == 1.25f);
	assert_true(p.transform.augment.shear == 6 && p.net.mean[0] == 0.5f && p.net.std[0] == 0.25f);
	c = LOAD("data.name=idx", "data.dir=/d", "data.train=a", "data.val=b", "data.classes=5",
		 "data.shape=[1, 2, 3]");
	ct_plan_dataset_spec(c, true, &spec);
	assert_true(strcmp(spec.split, "a") == 0 && strcmp(spec.dir, "/d") == 0 && spec.train);
	assert_true(spec.n_classes == 5 && spec.c == 1 && spec.h == 2 && spec.w == 3);
	ct_plan_dataset_spec(c, false, &spec);
	assert_true(strcmp(spec.split, "b") == 0 && !spec.train);
	ct_config_destroy(c);
}

static void test_evaluation_data_must_agree(void **state)
{
	struct ct_dataset_info other = digits;
	struct ct_run_plan p;
	struct ct_config *c = LOAD("batch.global=48", "batch.eval=100");

	(void)state;
	other.n = 230;
	assert_int_equal(ct_run_plan_make(c, 3, &digits, &other, &p), CT_OK);
	/* A rank's share of 230 samples is less than batch.eval: the rest of a batch would be computed for nothing. */
	assert_int_equal(p.eval_rows, 77);
	assert_int_equal(p.val.global_batch, 231);
	assert_int_equal(p.val.n, 230);
	other.n = 300;
	assert_int_equal(ct_run_plan_make(c, 3, &digits, &other, &p), CT_OK);
	assert_int_equal(p.eval_rows, 100);
	other.n = 301;
	assert_int_equal(ct_run_plan_make(c, 3, &digits, &other, &p), CT_OK);
	assert_int_equal(p.eval_rows, 100);
	other.w = 5;
	assert_int_equal(ct_run_plan_make(c, 3, &digits, &other, &p), CT_DATA);
	ct_config_destroy(c);
}

/* What only training minds does not keep ranks from evaluating. */
static void test_evaluation_alone(void **state)
{
	struct ct_dataset_info val = digits;
	struct ct_run_plan p;
	struct ct_config *c = LOAD("batch.global=50", "data.drop_last=true", "model.bn=sync", "batch.eval=100");

	(void)state;
	val.n = 10;
	assert_int_equal(ct_run_plan_make(c, 3, NULL, &val, &p), CT_OK);
	assert_true(p.has_val && !p.regression && p.world == 3);
	assert_int_equal(p.val.global_batch, 12);
	assert_int_equal(p.val.n, 10);
	assert_int_equal(p.val_input.w, 4);
	assert_int_equal(ct_run_plan_make(c, 3, &val, &val, &p), CT_CONFIG);
	ct_config_destroy(c);
}

static enum ct_status ranks_of(struct ct_config *c, struct ct_ranks *r)
{
	enum ct_status st = ct_plan_ranks(c, r);

	ct_config_destroy(c);
	return st;
}

static void test_ranks(void **state)
{
	struct ct_ranks r;

	(void)state;
	assert_int_equal(ranks_of(LOAD("launch.procs=3"), &r), CT_OK);
	assert_true(r.local == 3 && r.first == 0 && r.world == 3 && r.n_nodes == 1);
	assert_int_equal(
		ranks_of(LOAD("launch.procs=3", "launch.nodes=4", "launch.node_rank=2", "launch.master_addr=h"), &r),
		CT_OK);
	assert_true(r.local == 3 && r.first == 6 && r.world == 12 && r.node == 2);
	for (int node = 0; node < 3; node++) {
		static const int local[] = {8, 2, 5}, first[] = {0, 8, 10};
		char rank[40];

		snprintf(rank, sizeof(rank), "launch.node_rank=%d", node);
		assert_int_equal(
			ranks_of(LOAD("launch.procs_list=8,2,5", "launch.nodes=3", rank, "launch.master_addr=h"), &r),
			CT_OK);
		assert_true(r.local == local[node] && r.first == first[node] && r.world == 15);
	}
}

/* The CPUs of a rank compute; where images are distorted some load. Whoever chooses is obeyed. */
static void test_threads(void **state)
{
	struct ct_dataset_info info = digits;
	struct ct_config *plain = LOAD("data.workers=auto"), *affine = LOAD("data.augment.degrees=5"),
			 *told = LOAD("data.augment.degrees=5", "data.workers=3"),
			 *both = LOAD("launch.threads=5", "data.workers=0");
	int cpus = ct_cpu_count(), load = (cpus + 7) / 8;

	(void)state;
	info.in_memory = true;
	assert_int_equal(ct_plan_threads(plain, 1), cpus);
	assert_int_equal(ct_plan_loader_threads(plain, &info, 1), 0);
	assert_int_equal(ct_plan_loader_threads(affine, &info, 1), load);
	assert_int_equal(ct_plan_threads(affine, 1), cpus >= 4 ? cpus - load : cpus);
	assert_int_equal(ct_plan_loader_threads(told, &info, 1), 3);
	assert_int_equal(ct_plan_threads(told, 1), ct_plan_threads(affine, 1)); /* or the weights would differ */
	assert_int_equal(ct_plan_threads(both, 1), 5);
	assert_int_equal(ct_plan_loader_threads(both, &info, 1), 0);
	assert_int_equal(ct_plan_threads(plain, 100000), 1);
	assert_int_equal(ct_plan_threads(affine, 100000), 1);
	assert_int_equal(ct_plan_loader_threads(affine, &info, 100000), 1);
	info.in_memory = false;
	assert_int_equal(ct_plan_loader_threads(plain, &info, 1), load);
	ct_config_destroy(plain);
	ct_config_destroy(affine);
	ct_config_destroy(told);
	ct_config_destroy(both);
}

static void test_devices(void **state)
{
	struct ct_config *c = LOAD("device=cpu");
	ct_device *d;

	(void)state;
	assert_int_equal(ct_plan_device_open(c, 3, &d), CT_OK);
	ct_device_close(d);
	ct_config_destroy(c);
	c = LOAD("train.engine=ref", "launch.devices=0,2");
	assert_int_equal(ct_plan_device_open(c, 0, &d), CT_CONFIG);
	ct_config_destroy(c);
}

/* What opens the device or the data of a config also sets its limit on instructions. */
static void test_isa(void **state)
{
	static const char *const keys[] = {"train.isa=avx2", "train.isa=avx512", "train.isa=avx512_bf16",
					   "train.isa=amx"};
	const enum ct_isa best = ct_cpu_isa();
	struct ct_config *every = LOAD("device=cpu");
	ct_dataset *data;
	ct_device *d;

	(void)state;
	for (enum ct_isa isa = CT_ISA_AVX2; isa <= CT_ISA_AMX; isa++) {
		struct ct_config *c = LOAD("device=cpu", keys[isa - CT_ISA_AVX2], "data.name=synthetic");

		if (isa > best) {
			assert_fails(ct_plan_device_open(c, 0, &d), CT_UNSUPPORTED, keys[isa - CT_ISA_AVX2]);
			assert_fails(ct_plan_open_data(c, true, NULL, &data), CT_UNSUPPORTED,
				     best == CT_ISA_AUTO ? "not even avx2" : ct_isa_name(best));
			assert_fails(ct_plan_check_engine(c), CT_UNSUPPORTED, "this processor");
		} else {
			assert_ok(ct_plan_device_open(c, 0, &d));
			ct_device_close(d);
			assert_int_equal(ct_cpu_limit(), isa);
			assert_ok(ct_plan_device_open(every, 0, &d));
			ct_device_close(d);
			assert_int_equal(ct_cpu_limit(), CT_ISA_AUTO);
			assert_ok(ct_plan_open_data(c, true, NULL, &data));
			ct_dataset_close(data);
			assert_int_equal(ct_cpu_limit(), isa);
		}
		assert_ok(ct_plan_check_engine(every));
		assert_int_equal(ct_cpu_limit(), CT_ISA_AUTO);
		ct_config_destroy(c);
	}
	ct_config_destroy(every);
}

static void test_precision(void **state)
{
	const enum ct_precision best = ct_cpu_has(CT_CPU_AMX_BF16) ? CT_PRECISION_BF16 : CT_PRECISION_FP32;
	struct ct_config *cases[] = {LOAD("precision=auto", "device=cpu"), LOAD("precision=auto", "device=cuda"),
				     LOAD("precision=auto", "device=cpu", "train.engine=ref"),
				     LOAD("precision=auto", "device=cpu", "train.isa=avx512_bf16"),
				     LOAD("precision=tf32", "device=cuda")};
	const enum ct_precision want[] = {best, CT_PRECISION_BF16, CT_PRECISION_FP32, CT_PRECISION_FP32,
					  CT_PRECISION_TF32};
	struct ct_config *c = LOAD("precision=auto", "device=cpu"), *slow = LOAD("device=cuda");
	struct ct_run_plan p;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		assert_int_equal(ct_plan_precision(cases[i]), want[i]);
		assert_int_equal(plan_of(cases[i], 1, &p), CT_OK);
		assert_int_equal(p.net.precision, want[i]);
	}
	assert_string_equal(ct_plan_precision_note(slow), "without Tensor Cores; precision=auto is faster");
	assert_ok(ct_plan_settle_precision(slow, "bf16"));
	assert_int_equal(slow->precision, CT_PRECISION_FP32);
	assert_null(ct_plan_precision_note(c));
	assert_fails(ct_plan_settle_precision(c, "fp8"), CT_DATA, "unknown value \"fp8\"");
	assert_ok(ct_plan_settle_precision(c, "bf16"));
	assert_int_equal(c->precision, CT_PRECISION_BF16);
	assert_string_equal(ct_plan_precision_note(c), "auto: the run began with it");
	assert_string_equal(ct_config_origin(c, "precision"), "auto: the run began with it");
	ct_config_destroy(slow);
	ct_config_destroy(c);
}

static void test_names(void **state)
{
	struct ct_config *c = LOAD("run.dir=a/b///", "run.name=mine");
	char *dir = ct_plan_run_dir(c);

	(void)state;
	assert_string_equal(dir, "a/b");
	ct_free(dir);
	assert_string_equal(ct_plan_run_id(c, ""), "mine");
	assert_string_equal(ct_plan_run_id(c, "slurm-7.0"), "slurm-7.0");
	ct_config_destroy(c);
	c = LOAD("train.resume=never");
	assert_string_equal(ct_plan_how_to_resume(c), "run the command again with train.resume=auto");
	ct_config_destroy(c);
	c = LOAD("dist.run_id=told", "run.name=mine");
	assert_string_equal(ct_plan_how_to_resume(c), "run the same command again");
	assert_string_equal(ct_plan_run_id(c, "slurm-7.0"), "told");
	ct_config_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch_is_cut_evenly),
		cmocka_unit_test(test_accumulate_adapts),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_learning_rate),
		cmocka_unit_test(test_schedule_in_steps),
		cmocka_unit_test(test_each_key_has_its_place),
		cmocka_unit_test(test_evaluation_data_must_agree),
		cmocka_unit_test(test_evaluation_alone),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_devices),
		cmocka_unit_test(test_isa),
		cmocka_unit_test(test_precision),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
