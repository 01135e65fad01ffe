/* Values, precedence, provenance and inheritance of configurations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/config_fixture.h"
#include "trainer/config/config_impl.h"

static const char *const pod_variables[] = {"JOB_COMPLETION_INDEX", "PET_NNODES",         "PET_NODE_RANK",
					    "PET_NPROC_PER_NODE",   "PET_MASTER_ADDR",    "PET_MASTER_PORT",
					    "PET_MAX_RESTARTS",     "TORCHELASTIC_RUN_ID"};

/* The origin of the key's value, without the directory. */
static void expect_origin(const struct ct_config *c, const char *key, const char *want)
{
	const char *where = ct_config_origin(c, key);
	size_t n = strlen(tmpdir);

	assert_non_null(where);
	assert_string_equal(strncmp(where, tmpdir, n) == 0 ? where + n + 1 : where, want);
}

static void test_defaults(void **state)
{
	struct ct_config *c = load_text(GOOD);

	(void)state;
	assert_string_equal(c->run.name, "run one");
	assert_string_equal(c->run.dir, "runs/run one");
	assert_int_equal(c->run.seed, 1);
	assert_int_equal(c->launch.procs, CT_CFG_AUTO);
	assert_int_equal(c->launch.nodes, 1);
	assert_int_equal(c->launch.threads, CT_CFG_AUTO);
	assert_int_equal(c->model.hidden.n, 2);
	assert_int_equal(c->model.hidden.v[0], 512);
	assert_int_equal(c->model.hidden.v[1], 256);
	assert_int_equal(c->batch.per_rank, 64);
	assert_int_equal(c->batch.global, 0);
	assert_int_equal(c->data.shape.n, 3);
	assert_true(!c->data.drop_last && c->checkpoint.best && c->data.shuffle == CT_CFG_SHUFFLE_GLOBAL);
	assert_string_equal(c->data.dir, "");
	assert_string_equal(c->log.level, "info");
	assert_string_equal(c->train.resume, "auto");
	assert_true(c->dist.timeout == 600 && c->optim.eps == 1e-8);
	expect_origin(c, "optim.lr", "default");
	expect_origin(c, "model.name", "run one.yaml:1:15");
	assert_null(ct_config_origin(c, "optim.ler"));
	ct_config_destroy(c);
}

/* Types come from the schema, whatever a value looks like. */
static void test_types(void **state)
{
	struct ct_config *c = load_text(
		"model:\n  name: layers\n  layers: [relu, 'a: b', no, 12]\ndata: {name: synthetic, shape: [3, 8, 8], mean: "
		"[0.5, .25, 1e-1], std: [1, 2., 3]}\n"
		"train: {epochs: 3}\nrun: {name: no, dir: 1e4, seed: +7}\noptim: {lr: 1e-4, weight_decay: \"5e-4\", clip_norm: 1}\n"
		"dist: {timeout: 10min, rendezvous_timeout: 500ms, bucket_mib: 512KiB, first_bucket_mib: 1 GiB}\n"
		"launch: {threads: auto, master_addr: ~}\nlog: {level: \"warn,dist=debug\"}\ncheckpoint: {best: false}\n"
		"schedule: {name: multistep, milestones: [1, 2.5]}\n");

	(void)state;
	assert_string_equal(c->run.name, "no");
	assert_string_equal(c->run.dir, "1e4");
	assert_string_equal(c->launch.master_addr, "~");
	assert_int_equal(c->run.seed, 7);
	assert_true(c->optim.lr == 1e-4 && c->optim.weight_decay == 5e-4 && c->optim.clip_norm == 1);
	assert_true(c->dist.timeout == 600 && c->dist.rendezvous_timeout == 0.5);
	assert_true(c->dist.bucket_mib == 0.5 && c->dist.first_bucket_mib == 1024);
	assert_int_equal(c->model.layers.n, 4);
	assert_string_equal(c->model.layers.v[1], "a: b");
	assert_string_equal(c->model.layers.v[2], "no");
	assert_string_equal(c->model.layers.v[3], "12");
	assert_true(c->data.mean.n == 3 && c->data.mean.v[2] == 0.1 && c->data.std.v[1] == 2);
	assert_true(c->schedule.milestones.v[1] == 2.5 && !c->checkpoint.best);
	ct_config_destroy(c);
	c = load_text("model: {name: mlp}\ndata: {name: synthetic}\ntrain: {epochs: 1}\ndist: {bucket_mib: auto}\n");
	assert_true(c->dist.bucket_mib == CT_CFG_AUTO);
	ct_config_destroy(c);
}

static void test_anchors_and_empty_sections(void **state)
{
	struct ct_config *c = load_text(
		"model: {name: mlp, hidden: &h [8, 8]}\ndata:\n  name: synthetic\n  mean: &m [0.5]\n  std: *m\n"
		"train: {epochs: 1}\noptim:\n  # lr: 1\nlog: {}\n");

	(void)state;
	assert_true(c->data.std.n == 1 && c->data.std.v[0] == 0.5);
	ct_config_destroy(c);
}

static void test_precedence(void **state)
{
	const struct ct_config_set sets[] = {{"optim.lr", "0.3", "argument 2"},
					     {"optim.lr", "0.4", "argument 3"},
					     {"model.hidden", "[32, 16]", "argument 4"},
					     {"launch.procs", "3", "--procs"},
					     {"run.name", "", "argument 5"}};
	struct ct_config *c;

	(void)state;
	put("base.yaml", "optim: {lr: 0.1, momentum: 0.5}\nlog: {level: warn, every: 7}\n" GOOD);
	put("child.yaml", "base: base.yaml\noptim:\n  lr: 0.2\nrun: {name: given}\n");
	c = load(in_tmpdir("child.yaml"), NULL, 0);
	assert_true(c->optim.lr == 0.2 && c->optim.momentum == 0.5);
	expect_origin(c, "optim.lr", "child.yaml:3:7");
	expect_origin(c, "optim.momentum", "base.yaml:1:28");
	assert_string_equal(c->log.level, "warn");
	ct_config_destroy(c);

	setenv("CTRAIN_LOG", "debug", 1);
	c = load(in_tmpdir("child.yaml"), sets, CT_ARRAY_LEN(sets));
	unsetenv("CTRAIN_LOG");
	assert_true(c->optim.lr == 0.4);
	expect_origin(c, "optim.lr", "argument 3");
	assert_string_equal(c->log.level, "debug");
	expect_origin(c, "log.level", "environment CTRAIN_LOG");
	assert_true(c->model.hidden.n == 2 && c->model.hidden.v[1] == 16);
	assert_int_equal(c->launch.procs, 3);
	expect_origin(c, "launch.procs", "--procs");
	expect_origin(c, "log.every", "base.yaml:2:27");
	assert_string_equal(c->run.name, "child"); /* set to nothing: back to the file's name */
	ct_config_destroy(c);

	const struct ct_config_set level[] = {{"log.level", "error", "argument 2"}};
	setenv("CTRAIN_LOG", "debug", 1);
	c = load(in_tmpdir("child.yaml"), level, 1);
	unsetenv("CTRAIN_LOG");
	assert_string_equal(c->log.level, "error");
	ct_config_destroy(c);
}

/* Kubernetes: torchrun's variables, which Kubeflow sets, and the index of a pod of an Indexed Job. */
static void test_pods(void **state)
{
	const struct ct_config_set two[] = {{"launch.nodes", "2", "--nodes"},
					    {"launch.master_addr", "a", "--master-addr"}};
	const struct ct_config_set three[] = {{"launch.nodes", "3", "--nodes"},
					      {"launch.node_rank", "2", "--node-rank"}};
	const struct ct_config_set batch[] = {{"batch.global", "96", "test"}};
	struct ct_config *c;

	(void)state;
	put("pod.yaml", GOOD);
	setenv("JOB_COMPLETION_INDEX", "1", 1);
	c = load(in_tmpdir("pod.yaml"), NULL, 0); /* pods that are separate runs */
	assert_int_equal(c->launch.node_rank, 0);
	ct_config_destroy(c);
	c = load(in_tmpdir("pod.yaml"), two, CT_ARRAY_LEN(two));
	assert_int_equal(c->launch.node_rank, 1);
	expect_origin(c, "launch.node_rank", "environment JOB_COMPLETION_INDEX");
	ct_config_destroy(c);

	setenv("PET_NNODES", "4", 1);
	setenv("PET_NODE_RANK", "0", 1);
	setenv("PET_NPROC_PER_NODE", "auto", 1);
	setenv("PET_MASTER_ADDR", "job-master-0", 1);
	setenv("PET_MASTER_PORT", "23456", 1);
	c = load(in_tmpdir("pod.yaml"), NULL, 0);
	assert_int_equal(c->launch.nodes, 4);
	assert_int_equal(c->launch.node_rank, 0);
	expect_origin(c, "launch.node_rank", "environment PET_NODE_RANK");
	assert_int_equal(c->launch.procs, CT_CFG_AUTO);
	assert_string_equal(c->launch.master_addr, "job-master-0");
	assert_int_equal(c->launch.master_port, 23456);
	ct_config_destroy(c);
	c = load(in_tmpdir("pod.yaml"), three, CT_ARRAY_LEN(three));
	assert_int_equal(c->launch.nodes, 3);
	assert_int_equal(c->launch.node_rank, 2);
	ct_config_destroy(c);

	setenv("PET_NNODES", "1:3", 1); /* an elastic job */
	setenv("PET_MAX_RESTARTS", "5", 1);
	c = load(in_tmpdir("pod.yaml"), batch, 1);
	assert_int_equal(c->launch.nodes, 3);
	assert_int_equal(c->launch.min_nodes, 1);
	assert_int_equal(c->launch.restarts, 5);
	ct_config_destroy(c);

	setenv("TORCHELASTIC_RUN_ID", "none", 1); /* a rank that torchrun has started in such a pod */
	c = load(in_tmpdir("pod.yaml"), NULL, 0);
	assert_int_equal(c->launch.nodes, 1);
	ct_config_destroy(c);
	for (size_t i = 0; i < CT_ARRAY_LEN(pod_variables); i++)
		unsetenv(pod_variables[i]);
}

/* base: is relative to the file that says it, bases of bases too. */
static void test_base_paths(void **state)
{
	struct ct_config *c;

	(void)state;
	assert_ok(ct_dir_make(in_tmpdir("a/b")));
	put("root.yaml", GOOD "run: {seed: 11}\noptim: {lr: 0.1}\n");
	put("a/middle.yaml", "base: ../root.yaml\noptim: {lr: 0.2}\n");
	put("a/b/leaf.yaml", "base: ../middle.yaml\n");
	c = load(in_tmpdir("a/b/leaf.yaml"), NULL, 0);
	assert_int_equal(c->run.seed, 11);
	assert_true(c->optim.lr == 0.2);
	assert_string_equal(c->run.name, "leaf");
	ct_config_destroy(c);
	assert_ok(ct_file_replace(in_tmpdir("abs.yaml"), "", 0));
	char *text = ct_strfmt("base: %s/root.yaml\n", tmpdir);
	put("a/abs.yaml", text);
	ct_free(text);
	c = load(in_tmpdir("a/abs.yaml"), NULL, 0);
	assert_int_equal(c->run.seed, 11);
	ct_config_destroy(c);
}

static void test_data_dir(void **state)
{
	const char *text = "model: {name: mlp}\ndata: {name: fashion_mnist}\ntrain: {epochs: 1}\n";
	const struct ct_config_set sets[] = {{"data.dir", "../here", "argument 2"}};
	struct ct_config *c = load_text(text);

	(void)state;
	assert_string_equal(c->data.dir, "datasets/fashion_mnist");
	expect_origin(c, "data.dir", "default");
	ct_config_destroy(c);
	setenv("CTRAIN_DATA", "/srv/data", 1);
	c = load_text(text);
	assert_string_equal(c->data.dir, "/srv/data/fashion_mnist");
	expect_origin(c, "data.dir", "environment CTRAIN_DATA");
	ct_config_destroy(c);
	c = load(in_tmpdir("run one.yaml"), sets, 1);
	assert_string_equal(c->data.dir, "../here");
	expect_origin(c, "data.dir", "argument 2");
	ct_config_destroy(c);
	c = load_text(GOOD);
	assert_string_equal(c->data.dir, "");
	ct_config_destroy(c);
	unsetenv("CTRAIN_DATA");
}

/* The higher source wins over keys that exclude its own. */
static void test_exclusive_keys(void **state)
{
	const struct ct_config_set per_rank[] = {{"batch.per_rank", "16", "argument 2"}},
				   list[] = {{"launch.procs_list", "2,1", "--procs"},
					     {"launch.nodes", "2", "--nodes"},
					     {"launch.master_addr", "h", "--master-addr"}},
				   automatic[] = {{"launch.procs", "auto", "--procs"}};
	struct ct_config *c;

	(void)state;
	c = load_text(GOOD "batch: {global: 256}\nlaunch: {procs: 4}\nschedule: {warmup_epochs: 2}\n");
	assert_true(c->batch.global == 256 && c->batch.per_rank == 0);
	expect_origin(c, "batch.per_rank", "not set, because batch.global is");
	assert_int_equal(ct_config_origin_kind(c, "batch.per_rank"), CT_ORIGIN_UNSET);
	assert_int_equal(ct_config_origin_kind(c, "batch.global"), CT_ORIGIN_FILE);
	ct_config_destroy(c);
	c = load(in_tmpdir("run one.yaml"), per_rank, 1);
	assert_true(c->batch.global == 0 && c->batch.per_rank == 16);
	ct_config_destroy(c);
	c = load(in_tmpdir("run one.yaml"), list, CT_ARRAY_LEN(list));
	assert_int_equal(c->launch.procs, CT_CFG_AUTO);
	assert_string_equal(c->launch.procs_list, "2,1");
	ct_config_destroy(c);
	put("batch.yaml", "base: run one.yaml\nbatch: {per_rank: 8}\nschedule: {warmup_steps: 3}\n");
	c = load(in_tmpdir("batch.yaml"), NULL, 0);
	assert_true(c->batch.global == 0 && c->batch.per_rank == 8);
	assert_true(c->schedule.warmup_steps == 3 && c->schedule.warmup_epochs == 0);
	ct_config_destroy(c);
	c = load_text(GOOD "launch: {procs_list: \"2\"}\n");
	assert_string_equal(c->launch.procs_list, "2");
	ct_config_destroy(c);
	c = load(in_tmpdir("run one.yaml"), automatic, 1);
	assert_string_equal(c->launch.procs_list, "");
	ct_config_destroy(c);
}

/* Another optimizer on the command line drops the file's keys for the old one. */
static void test_keys_of_another_kind(void **state)
{
	const struct ct_config_set adamw[] = {{"optim.name", "adamw", "argument 2"}},
				   both[] = {{"optim.name", "adamw", "argument 2"},
					     {"optim.momentum", "0.5", "argument 3"}};
	struct ct_config *c;

	(void)state;
	put("sgd.yaml", GOOD "optim: {momentum: 0.5, nesterov: true}\n");
	c = load(in_tmpdir("sgd.yaml"), adamw, 1);
	assert_true(c->optim.momentum == 0.9 && !c->optim.nesterov);
	assert_non_null(strstr(ct_config_origin(c, "optim.momentum"), "is for another optim.name"));
	assert_int_equal(ct_config_origin_kind(c, "optim.momentum"), CT_ORIGIN_DERIVED);
	assert_int_equal(ct_config_origin_kind(c, "optim.name"), CT_ORIGIN_OTHER);
	assert_int_equal(ct_config_origin_kind(c, "run.seed"), CT_ORIGIN_DEFAULT);
	ct_config_destroy(c);
	assert_fails(ct_config_load(in_tmpdir("sgd.yaml"), both, 2, &c), CT_CONFIG,
		     "argument 3: error: optim.momentum does not apply");
}

/* The table of optimizers has the default learning rates. The documentation names all of them. */
static void test_default_learning_rates(void **state)
{
	const char *doc = ct__key_find("optim.lr")->doc;

	(void)state;
	put("lr.yaml", GOOD);
	for (int kind = 0; kind < CT_N_OPTIMIZERS; kind++) {
		const char *name = ct__key_find("optim.name")->choices[kind];
		const struct ct_config_set sets[] = {{"optim.name", name, "argument 2"},
						     {"optim.lr", "0.25", "argument 3"}};
		struct ct_config *c = load(in_tmpdir("lr.yaml"), sets, 1);

		if (!strstr(doc, name) || !(c->optim.lr > 0) ||
		    c->optim.lr != ct_optim_default_lr((enum ct_optim_kind)kind))
			fail_msg("the default learning rate of %s is %g: \"%s\"", name, c->optim.lr, doc);
		ct_config_destroy(c);
		c = load(in_tmpdir("lr.yaml"), sets, 2);
		assert_true(c->optim.lr == 0.25);
		ct_config_destroy(c);
	}
}

/* On the command line lists go with and without brackets. */
static void test_lists_of_the_command_line(void **state)
{
	static const struct {
		const char *text;
		int n;
	} lists[] = {{"64", 1}, {"64,32", 2}, {" 64 , 32 ,16", 3}, {"[64, 32]", 2},
		     {"[]", 0}, {"", 0},      {"[64,32,]", 2}};

	(void)state;
	put("list.yaml", GOOD);
	for (size_t i = 0; i < CT_ARRAY_LEN(lists); i++) {
		const struct ct_config_set set = {"model.hidden", lists[i].text, "argument 2"};
		struct ct_config *c = load(in_tmpdir("list.yaml"), &set, 1);

		assert_int_equal(c->model.hidden.n, lists[i].n);
		assert_true(lists[i].n < 2 || c->model.hidden.v[1] == 32);
		ct_config_destroy(c);
	}
	const struct ct_config_set bad[] = {{"model.hidden", "1,,2", "argument 2"},
					    {"model.hidden", "[1", "argument 2"},
					    {"model.hidden", "a,2", "argument 2"},
					    {"model.hidden", "{a: 1}", "argument 2"},
					    {"run.name", "a\xFF", "argument 2"},
					    {"optim.lr", "", "argument 2"},
					    {"base", "x", "argument 2"}};
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		struct ct_config *c = NULL;

		assert_fails(ct_config_load(in_tmpdir("list.yaml"), &bad[i], 1, &c), CT_CONFIG, "argument 2");
		assert_null(c);
	}
}

/* Each name of each enumeration is read as its place in the list and written as the name again. */
static void test_row_36_choices(void **state)
{
	struct ct_config *c = load_text(GOOD);
	const struct ct_source source = {.name = "test", .layer = CT_LAYER_ARGS};
	int keys = 0;

	(void)state;
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);

		for (int v = 0; k->type == CT_KEY_ENUM && k->choices[v]; v++) {
			struct ct_problems p = {0};
			struct ct_str text = {0};

			assert_ok(ct__key_store_text(i, c, k->choices[v], &source, &p));
			assert_int_equal(p.n, 0);
			assert_int_equal(*(const int *)ct__key_slot(k, c), v);
			ct__key_format(k, c, false, &text);
			assert_string_equal(ct_str_text(&text), k->choices[v]);
			assert_string_equal(ct_config_choice(c, k->name), k->choices[v]);
			ct_str_release(&text);
			keys += v == 0;
		}
	}
	assert_true(keys >= 14);
	/* The last value of each list. */
	assert_int_equal(c->model.name, CT_CHOICE_COUNT(CT_MODELS) - 1);
	assert_int_equal(c->data.name, CT_CHOICE_COUNT(CT_CFG_DATA_SETS) - 1);
	assert_int_equal(c->model.bn, CT_CHOICE_COUNT(CT_CFG_BNS) - 1);
	assert_int_equal(c->optim.name, CT_N_OPTIMIZERS - 1);
	assert_int_equal(c->schedule.name, CT_CHOICE_COUNT(CT_SCHEDULES) - 1);
	assert_int_equal(c->precision, CT_CHOICE_COUNT(CT_PRECISIONS) - 1);
	assert_int_equal(c->train.recompute, CT_CHOICE_COUNT(CT_RECOMPUTES) - 1);
	ct_config_destroy(c);
	/* Upper and lower case are equal, as in torch.distributed. */
	c = load_text(GOOD "dist: {backend: GLOO}\noptim: {name: SGD}\ndevice: CPU\n");
	assert_string_equal(c->dist.backend, "gloo");
	assert_string_equal(ct_config_choice(c, "optim.name"), "sgd");
	assert_string_equal(c->device, "cpu");
	ct_config_destroy(c);
}

/* Returns true if the key is in a section or below another key that is a string, such as data.train. */
static bool is_below_parent(const char *name)
{
	const char *dot = strrchr(name, '.');
	char parent[64];

	snprintf(parent, sizeof(parent), "%.*s", dot ? (int)(dot - name) : 0, name);
	return !dot || ct__section_exists(parent) || (ct__key_find(parent) && ct__key_find(parent)->type == CT_KEY_STR);
}

/* The table itself: names below something that exists, defaults that parse, choices and controllers that exist. The
 * types of fields follow from keys.def. */
static void test_schema(void **state)
{
	(void)state;
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);
		bool list = k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS;
		bool number = k->type == CT_KEY_INT || k->type == CT_KEY_FLOAT || k->type == CT_KEY_MIB ||
			      k->type == CT_KEY_SECONDS;
		size_t controller;

		assert_int_equal(ct__key_index(k->name), i);
		assert_true(is_below_parent(k->name));
		assert_true(k->doc && k->doc[strlen(k->doc) - 1] == '.');
		assert_true(!number || (k->hi > k->lo && k->def));
		assert_true(!list || k->max_n > 0);
		assert_true(k->type != CT_KEY_BOOL || k->def);
		assert_true(k->type != CT_KEY_ENUM || (k->choices && !(k->flags & CT_KEY_OTHERS)));
		assert_true(k->type != CT_KEY_ENUM || k->def || k->flags & CT_KEY_REQUIRED);
		if (k->only) {
			const char *kinds = ct__key_only(k, &controller);
			const char *const *all = ct__key_at(controller)->choices;
			char word[64];

			for (size_t w = 0; ct__word_at(kinds, w, word, sizeof(word)); w++)
				assert_true(ct_choice_find(all, word) >= 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_schema),
		cmocka_unit_test(test_row_36_choices),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_anchors_and_empty_sections),
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_pods),
		cmocka_unit_test(test_base_paths),
		cmocka_unit_test(test_data_dir),
		cmocka_unit_test(test_exclusive_keys),
		cmocka_unit_test(test_keys_of_another_kind),
		cmocka_unit_test(test_default_learning_rates),
		cmocka_unit_test(test_lists_of_the_command_line),
	};

	unsetenv("CTRAIN_LOG");
	unsetenv("CTRAIN_DATA");
	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
