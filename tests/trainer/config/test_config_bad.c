/* Malformed configurations: every error is reported with its location and a helpful message, all errors are reported at
 * once, and nothing crashes. */
#include "tests/trainer/bad_config.h"

struct bad {
	const char *what, *text;
	size_t len; /* 0: strlen */
	const char *place, *words;
};
#define TEXT(s) s, sizeof(s) - 1

/* To be gone on with inside of data. */
#define GOOD_DATA "model: {name: mlp}\ntrain: {epochs: 1}\ndata:\n  name: mnist\n"
#define SHARDS "model: {name: resnet18}\ntrain: {epochs: 1}\ndata:\n  name: shards\n"

static const struct bad cases[] = {
	{"a good one", GOOD, 0, NULL, NULL},
	{"a good one with a byte order mark and Windows line ends",
	 "\xEF\xBB\xBFrun: {seed: 3}\r\n" GOOD "optim:\r\n  lr: 1\r\n", 0, NULL, NULL},
	/* no YAML at all */
	{"empty", "", 0, ":1:1:", "contains no configuration"},
	{"blank", "\n\n  \n", 0, ":1:1:", "contains no configuration"},
	{"comment only", "# nothing\n", 0, ":1:1:", "contains no configuration"},
	{"binary", TEXT("model:\n  name: \0\1\2"), ":2:9:", "byte 0x00 is not a text character"},
	{"escape byte", TEXT("model:\n  name: \x1b[31m"), ":2:9:", "byte 0x1b"},
	{"C1 control", TEXT("run:\n  name: a\xC2\x9F"), ":2:10:", "U+009F"},
	{"latin-1", TEXT("run:\n  name: caf\xE9\n"), ":2:12:", "byte 0xe9 is not valid UTF-8"},
	{"overlong UTF-8", TEXT("run:\n  name: \xC0\xAF\n"), ":2:9:", "not valid UTF-8"},
	{"UTF-16", TEXT("\xFF\xFEm\0o\0"), ":1:1:", "not valid UTF-8"},
	{"cut UTF-8 at the end", TEXT("run:\n  name: \xE2\x82"), ":2:9:", "not valid UTF-8"},
	{"no character", TEXT("run:\n  name: a\xEF\xBF\xBF\n"), ":2:10:", "control characters are not allowed"},
	/* syntax */
	{"no colon", "model\n  name: mlp\n", 0, ":2:7:", "mapping values are not allowed"},
	{"tab", "model:\n\tname: mlp\n", 0, ":2:1:", "tab"},
	{"tab below", "model:\n  name: mlp\n\tloss: mse\n", 0, ":3:1:", "tab"},
	{"indentation", "model:\n  name: mlp\n loss: mse\n", 0, ":3:2:", "did not find expected"},
	{"open brace", "model: {name: mlp\n", 0, ":2:1:", "did not find expected"},
	{"open bracket", "model:\n  hidden: [1, 2\ntrain:\n", 0, ":3:6:", "in \"train:\""},
	{"open quote", "run:\n  name: \"abc\n", 0, ":3:1:", "quoted scalar"},
	{"bad escape", "run:\n  name: \"a\\qb\"\n", 0, ":2:11:", "unknown escape character"},
	{"stray bracket", "model: ]\n", 0, ":1:8:", "did not find expected node content"},
	{"percent", "model: %x\n", 0, ":1:8:", "cannot start any token"},
	{"bad directive", "%YAML 9.9\n---\nmodel: {}\n", 0, ":1:1:", "YAML"},
	/* structure */
	{"text", "just a text\n", 0, ":1:1:", "a single string"},
	{"list", "- model\n- data\n", 0, ":1:1:", "this is a list"},
	{"two documents", GOOD "---\n" GOOD, 0, ":4:1:", "only one document"},
	{"tag", "train:\n  epochs: !!int 3\n", 0, ":2:11:", "tag"},
	{"local tag", "model: !python/object {name: mlp}\n", 0, ":1:8:", "tag"},
	{"merge key", "a: &a {name: mlp}\nmodel:\n  <<: *a\n", 0, ":3:3:", "merge keys"},
	{"unknown alias", "model:\n  name: *nowhere\n", 0, ":2:9:", "alias *nowhere"},
	{"recursive alias", "model: &m\n  layers: [*m]\n", 0, ":2:12:", "inside the value that it refers to"},
	{"list as key", "? [a, b]\n: 1\n", 0, ":1:3:", "a key must be a name"},
	{"empty key", "\"\": 1\n", 0, ":1:1:", "a key must be a name"},
	{"duplicate section", "model: {name: mlp}\ntrain: {epochs: 1}\nmodel: {}\n", 0,
	 ":3:1:", "duplicate key \"model\""},
	{"duplicate key", "optim:\n  lr: 1\n  momentum: 0.9\n  lr: 2\n", 0, ":4:3:", "first used in line 2"},
	/* keys */
	{"unknown section", GOOD "optimizer:\n  lr: 1\n", 0, ":4:1:", "did you mean \"optim\"?"},
	{"misspelt key", GOOD "optim:\n  momentun: 0.9\n", 0,
	 ":5:3:", "unknown key \"optim.momentun\"; did you mean \"optim.momentum\"?"},
	{"key of another section", GOOD "lr: 0.1\n", 0, ":4:1:", "did you mean \"optim.lr\"?"},
	{"misplaced key", GOOD "optim:\n  seed: 1\n", 0, ":5:3:", "did you mean \"run.seed\"?"},
	{"nested section", GOOD "data2:\n  augment: {}\n", 0, ":4:1:", "did you mean \"data\"?"},
	{"misspelt in augment",
	 "model: {name: mlp}\ntrain: {epochs: 1}\ndata:\n  name: mnist\n  augment:\n    flop: true\n", 0,
	 ":6:5:", "did you mean \"data.augment.flip\"?"},
	{"dotted key", GOOD "optim.lr: 0.1\n", 0, ":4:1:", "write the section"},
	{"another program's name", GOOD "optim: {wd: 1e-4}\n", 0, ":4:9:", "did you mean \"optim.weight_decay\"?"},
	{"another program's value", GOOD "device: gpu\n", 0, ":4:9:", "did you mean \"cuda\"?"},
	{"not alike anything", GOOD "zzzzzz: 1\n", 0, ":4:1:", "unknown key \"zzzzzz\""},
	{"value for a section", GOOD "optim: sgd\n", 0, ":4:8:", "optim is a section"},
	{"list for a section", GOOD "optim: [sgd]\n", 0, ":4:8:", "it contains the keys optim.name"},
	{"keys for a value", GOOD "optim:\n  lr: {max: 1}\n", 0, ":5:7:", "a group of keys instead of a single value"},
	{"list for a value", GOOD "optim:\n  lr: [1]\n", 0, ":5:7:", "a list instead of a single value"},
	{"number for a list", "model: {name: mlp, hidden: 512}\n", 0, ":1:28:", "instead of a list"},
	/* types and ranges */
	{"auto for a size that cannot be auto", GOOD "dist:\n  first_bucket_mib: auto\n", 0,
	 ":5:21:", "dist.first_bucket_mib: \"auto\" is not a number; the units are KiB, MiB, GiB"},
	{"word for a size that can be auto", GOOD "dist:\n  bucket_mib: Auto\n", 0,
	 ":5:15:", "dist.bucket_mib: \"Auto\" is not a number or auto; the units are KiB, MiB, GiB"},
	{"negative size", GOOD "dist:\n  bucket_mib: -1\n", 0, ":5:15:", "is out of range (from 0 to 65536)"},
	{"word for a number", GOOD "optim:\n  lr: fast\n", 0, ":5:7:", "optim.lr: \"fast\" is not a number"},
	{"hexadecimal", GOOD "run:\n  seed: 0x10\n", 0, ":5:9:", "not an integer"},
	{"leading zero", GOOD "run:\n  seed: 010\n", 0, ":5:9:", "octal"},
	{"fraction for an integer", GOOD "log:\n  every: 1.5\n", 0, ":5:10:", "\"1.5\" is not an integer"},
	{"exponent for an integer", GOOD "log:\n  every: 1e3\n", 0, ":5:10:", "write 1000"},
	{"too large for 64 bits", GOOD "run:\n  seed: 99999999999999999999\n", 0, ":5:9:", "is not an integer"},
	{"auto where it means nothing", GOOD "log:\n  every: auto\n", 0, ":5:10:", "is not an integer"},
	{"or auto", GOOD "launch:\n  procs: all\n", 0, ":5:10:", "is not an integer or auto"},
	{"nan", GOOD "optim:\n  lr: .nan\n", 0, ":5:7:", "not a number"},
	{"infinity", GOOD "optim:\n  lr: 1e999\n", 0, ":5:7:", "not a number"},
	{"negative", GOOD "optim:\n  lr: -0.1\n", 0, ":5:7:", "out of range (above 0 and at most 1000)"},
	{"below", GOOD "batch:\n  eval: 0\n", 0, ":5:9:", "out of range (from 1 to 65536)"},
	{"at an open end", GOOD "model_: 1\noptim:\n  momentum: 1\n", 0, ":6:13:", "from 0 to 1, excluding 1"},
	{"yes", GOOD "checkpoint:\n  best: yes\n", 0, ":5:9:", "write true"},
	{"Off", GOOD "checkpoint:\n  best: Off\n", 0, ":5:9:", "write false"},
	{"True", GOOD "checkpoint:\n  best: True\n", 0, ":5:9:", "write true"},
	{"no boolean", GOOD "checkpoint:\n  best: perhaps\n", 0, ":5:9:", "not true or false"},
	{"no value", GOOD "optim:\n  lr:\n", 0, ":5:6:", "is not a value"},
	{"no value for a choice", "model:\n  name:\n", 0, ":2:8:", "is not a value; set the key to mlp, lenet"},
	{"misspelt choice", "model:\n  name: convent\n", 0, ":2:9:", "did you mean \"convnet\"?"},
	{"unknown choice", "optim:\n  name: rprop2000\n", 0, ":2:9:", "choose one of sgd, adamw"},
	{"empty choice", "optim:\n  name: \"\"\n", 0, ":2:9:", "is unknown"},
	{"unknown precision", GOOD "precision: fp8\n", 0, ":4:12:", "fp32, bf16, fp16, tf32"},
	{"fp16 is a choice", GOOD "precision: fp16\n", 0, NULL, NULL},
	{"a size and sizes by epoch",
	 SHARDS "  train: {path: a.tar, size: [[0, 128], [10, 160]]}\n  val:\n    path: b.tar\n    size: 224\n", 0,
	 NULL, NULL},
	{"shuffle as before", GOOD_DATA "  shuffle: false\n", 0, NULL, NULL},
	{"unknown part", SHARDS "  train: {path: a.tar, sise: 224}\n", 0,
	 ":5:24:", "unknown key \"data.train.sise\"; did you mean \"data.train.size\"?"},
	{"sizes that fall back", SHARDS "  train:\n    size: [[0, 128], [0, 160]]\n", 0, ":6:23:", "must increase"},
	{"sizes that start late", SHARDS "  train:\n    size: [[1, 128]]\n", 0, ":6:13:", "first epoch must be 0"},
	{"a list of sizes without epochs", SHARDS "  train:\n    size: [128, 160]\n", 0,
	 ":6:12:", "list of pairs [epoch, number]"},
	{"size out of range", SHARDS "  train:\n    size: 5000\n", 0, ":6:11:", "from 8 to 4096"},
	{"size for images in memory", GOOD_DATA "  train: {size: 32}\n", 0,
	 ":5:17:", "does not apply to data.name mnist"},
	{"resize below the cut", SHARDS "  val: {size: 224, resize: 200}\n", 0, ":5:28:", "smaller than the crop"},
	{"resize below the usual cut", SHARDS "  val: {resize: 200}\n", 0, ":5:17:", "smaller than the crop"},
	{"window without shards", GOOD_DATA "  shuffle: window\n", 0, ":5:12:", "requires data.name=shards"},
	{"window size without window", SHARDS "  shuffle_window: 4\n", 0, ":5:19:", "does not apply to data.shuffle"},
	{"area the wrong way round", SHARDS "  augment: {area: [1, 0.08]}\n", 0, ":5:19:", "the smaller number first"},
	{"stem of an MLP", "model: {name: mlp, stem: cifar}\n", 0, ":1:26:", "does not apply to model.name mlp"},
	{"unknown unit", GOOD "dist:\n  timeout: 3 weeks\n", 0, ":5:12:", "units are ms, s, min, h"},
	{"entry of a list", "model:\n  name: mlp\n  hidden: [64, many]\n", 0, ":3:16:", "\"many\" is not an integer"},
	{"list in a list", "model:\n  name: mlp\n  hidden: [[64]]\n", 0, ":3:12:", "a list instead of a single value"},
	{"too many entries", "model:\n  name: mlp\n  hidden: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]\n", 0,
	 ":3:11:", "maximum is 16"},
	{"line break in a text", GOOD "run:\n  name: \"a\\nb\"\n", 0, ":5:9:", "line break"},
	{"NUL in a text", GOOD "run:\n  name: \"a\\0b\"\n", 0, ":5:9:", "control character"},
	{"NUL in a number", GOOD "run:\n  seed: \"1\\0\"\n", 0, ":5:9:", "not an integer"},
	{"NUL in a key", GOOD "\"run\\0\": {seed: 1}\n", 0, ":4:1:", "unknown key"},
	/* several keys */
	{"no model", "data: {name: mnist}\ntrain: {epochs: 1}\n", 0, ":1:1:", "model.name is missing"},
	{"no data", "model: {name: mlp}\ntrain: {epochs: 1}\n", 0, ":1:1:", "data.name is missing"},
	{"is not set", "model: {name: mlp}\ndata: {name: mnist}\n", 0, ":1:1:", "train.epochs or train.max_steps"},
	{"no end, said so", "model: {name: mlp}\ndata: {name: mnist}\ntrain:\n  epochs: 0\n", 0,
	 ":4:11:", "is not set"},
	{"two batch sizes", GOOD "batch:\n  global: 256\n  per_rank: 64\n", 0, ":6:13:", "exclude each other"},
	{"no batch size", GOOD "batch:\n  per_rank: 0\n", 0, ":5:13:", "the batch size is not set"},
	{"two warm-ups", GOOD "schedule:\n  warmup_steps: 5\n  warmup_epochs: 1\n", 0, ":5:17:", "exclude each other"},
	{"key of another model", GOOD "optim:\n  beta1: 0.9\n", 0,
	 ":5:10:", "does not apply to optim.name sgd, only to adam|adamw|lamb"},
	{"key of another data set", "model: {name: mlp}\ndata: {name: mnist, n_train: 5}\ntrain: {epochs: 1}\n", 0,
	 ":2:30:", "does not apply to data.name mnist"},
	{"no layers", "model: {name: layers}\ndata: {name: mnist}\ntrain: {epochs: 1}\n", 0,
	 ":1:15:", "requires the list model.layers"},
	{"loss without labels",
	 "model: {name: mlp, loss: cross_entropy}\ndata: {name: synthetic_regression}\ntrain: {epochs: 1}\n", 0,
	 ":1:26:", "use mse"},
	{"loss without numbers", "model: {name: mlp, loss: mse}\ndata: {name: mnist}\ntrain: {epochs: 1}\n", 0,
	 ":1:26:", "use cross_entropy"},
	{"accuracy of a regression",
	 "model: {name: mlp}\ndata: {name: synthetic_regression}\ntrain: {epochs: 1, target_top1: 0.9}\n", 0,
	 ":3:33:", "requires class labels"},
	{"target without evaluation",
	 "model: {name: mlp}\ndata: {name: mnist, val: none}\ntrain: {epochs: 1, target_top1: 0.9}\n", 0,
	 ":3:33:", "data.val is none"},
	{"Nesterov without momentum", GOOD "optim:\n  momentum: 0\n  nesterov: true\n", 0,
	 ":6:13:", "requires optim.momentum"},
	{"multistep without steps", GOOD "schedule:\n  name: multistep\n", 0, ":5:9:", "requires schedule.milestones"},
	{"milestones that fall", GOOD "schedule:\n  name: multistep\n  milestones: [30, 20]\n", 0,
	 ":6:15:", "must increase"},
	{"mean without std", "model: {name: mlp}\ndata: {name: mnist, mean: [0.1]}\ntrain: {epochs: 1}\n", 0,
	 ":2:27:", "one entry per channel"},
	{"shape of two", "model: {name: mlp}\ndata: {name: synthetic, shape: [28, 28]}\ntrain: {epochs: 1}\n", 0,
	 ":2:32:", "instead of 3"},
	{"node rank", GOOD "launch: {node_rank: 2}\n", 0, ":4:21:", "launch.nodes=1"},
	{"a range backwards", GOOD "launch: {nodes: 4..2, master_addr: a}\n", 0, ":4:17:", "is not a range MIN..MAX"},
	{"a range of three", GOOD "launch: {nodes: 1..2..3, master_addr: a}\n", 0, ":4:17:", "is not a range MIN..MAX"},
	{"a range from 0", GOOD "launch: {nodes: 0..3, master_addr: a}\n", 0, ":4:17:", "from 1 to 4096"},
	{"a range without restarts", GOOD "batch: {global: 48}\nlaunch: {nodes: 2..4, master_addr: a}\n", 0,
	 ":5:17:", "launch.nodes=2..4 requires launch.restarts"},
	{"a range without batch.global",
	 GOOD "batch: {per_rank: 8}\nlaunch: {nodes: 2..4, master_addr: a, restarts: 1}\n", 0,
	 ":5:17:", "requires batch.global"},
	{"a range of pipelines",
	 GOOD "batch: {global: 48}\nlaunch: {nodes: 2..4, master_addr: a, restarts: 1, pipeline: 2}\n", 0,
	 ":5:17:", "requires launch.pipeline=1"},
	{"nodes without address", GOOD "launch:\n  nodes: 2\n", 0, ":5:10:", "--master-addr"},
	{"two meeting places", GOOD "launch:\n  init: file:///x\n  master_addr: a\n", 0,
	 ":6:16:", "both set the address of the rendezvous"},
	{"procs of other nodes", GOOD "launch: {nodes: 3, master_addr: a, procs_list: \"8,2\"}\n", 0,
	 ":4:48:", "is for 2 nodes"},
	{"procs list", GOOD "launch: {procs_list: \"8,x\"}\n", 0, ":4:22:", "for example \"8,2\""},
	{"devices of one process", GOOD "launch: {procs: 1, devices: \"0,1\"}\n", 0, ":4:29:",
	 "lists 2 GPUs, but launch.procs=1 starts 1 process, and each process uses one GPU; set launch.procs=2"},
	{"devices on the CPU", GOOD "device: cpu\nlaunch: {procs: 1, devices: \"0,1\"}\n", 0,
	 ":5:29:", "launch.devices=0,1 selects GPUs, but device=cpu computes on the CPU; remove launch.devices"},
	{"devices without processes", GOOD "launch: {procs: 2, devices: \"0,1,1\"}\n", 0,
	 ":4:29:", "launch.procs=2 starts 2 processes"},
	{"nn.DataParallel", GOOD "parallel: dp\n", 0,
	 ":4:1:", "did you mean \"launch.procs\"? Write \"procs: auto\" in the section launch (ctrain starts one"},
	{"backend ddp", GOOD "dist: {backend: ddp}\n", 0, ":4:17:", "did you mean \"auto\"?"},
	{"port range", GOOD "dist: {port_range: 30000}\n", 0, ":4:20:", "must be FIRST-LAST"},
	{"port range of other ports", GOOD "dist: {port_range: 0-70000}\n", 0, ":4:20:", "two ports from 1 to 65535"},
	{"port outside the range",
	 GOOD "launch: {nodes: 2, master_addr: a, master_port: 29500}\ndist: {port_range: 30000-30100}\n", 0,
	 ":4:49:", "launch.master_port=29500 is not in dist.port_range (30000-30100)"},
	{"port range that a library ignores",
	 GOOD "launch: {nodes: 2, master_addr: a}\ndist: {port_range: 30000-30100, backend: nccl}\n", 0,
	 ":5:20:", "chooses its ports itself"},
	{"init", GOOD "launch: {init: \"http://a:1\"}\n", 0, ":4:16:", "must be env://"},
	{"log level", GOOD "log:\n  level: info,dist=debgu\n", 0, ":5:10:", "did you mean \"debug\"?"},
	{"run name", GOOD "run:\n  name: a/b\n", 0, ":5:9:", "directory name"},
	{"resume", GOOD "train2: 1\n", 0, ":4:1:", "did you mean \"train\"?"},
	{"misspelt resume", "model: {name: mlp}\ndata: {name: mnist}\ntrain:\n  epochs: 1\n  resume: atuo\n", 0,
	 ":5:11:", "did you mean \"auto\"?"},
	/* base */
	{"base as list", "base: [a.yaml]\n", 0, ":1:7:", "must name a single file"},
	{"base without value", "base:\n", 0, ":1:6:", "must name a single file"},
	{"base that is not there", "base: nothere.yaml\n", 0, ":1:7:", "No such file"},
	{"base on itself", "base: bad.yaml\n", 0, ":1:7:", "circular inheritance"},
};

static void test_table(void **state)
{
	size_t n_wrong = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		const struct bad *b = &cases[i];
		const char *path = put("bad.yaml", b->text, b->len ? b->len : strlen(b->text));

		if (b->place)
			n_wrong += !matches(b->what, path, b->place, b->words);
		else
			assert_ok(load(path));
	}
	assert_int_equal(n_wrong, 0);
	assert_true(CT_ARRAY_LEN(cases) >= 40);
}

/* All problems of file, environment and command line come together, and a flood is cut. */
static void test_T9_all_at_once(void **state)
{
	static const struct ct_config_set sets[] = {
		{"optim.ler", "1", "argument 2"}, {"optim.lr", "x", "argument 3"}, {"batch", "3", "argument 4"}};
	static const char text[] =
		"model: {name: covnet}\ndata: {name: mnist, workers: -1}\noptim:\n  lr: no\nfoo: 1\nfoo: 2\n";
	const char *path = put("all.yaml", text, sizeof(text) - 1), *message;
	struct ct_str b = {0};

	(void)state;
	setenv("CTRAIN_LOG", "loud", 1);
	assert_int_equal(ct_config_load(path, sets, CT_ARRAY_LEN(sets), &loaded), CT_CONFIG);
	unsetenv("CTRAIN_LOG");
	message = ct_error_message();
	static const char *const parts[] = {
		"all.yaml:1:15: error: model.name: \"covnet\" is unknown; did you mean \"convnet\"?",
		"all.yaml:2:30: error: data.workers: \"-1\" is out of range (from 0 to 256)",
		"all.yaml:4:7: error: optim.lr: \"no\" is not a number",
		"all.yaml:5:1: error: unknown key \"foo\"",
		"all.yaml:6:1: error: duplicate key \"foo\"; it was first used in line 5",
		"all.yaml:6:1: error: unknown key \"foo\"",
		"argument 2: error: unknown key \"optim.ler\"; did you mean \"optim.lr\"?",
		"argument 3: error: optim.lr: \"x\" is not a number",
		"argument 4: error: batch is a section, not a key; it contains the keys batch.global",
		"environment CTRAIN_LOG: error: log.level: unknown level \"loud\"",
		"all.yaml:1:1: error: the length of training is not set",
	};
	size_t n_errors = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(parts); i++) {
		if (!strstr(message, parts[i]))
			fail_msg("no \"%s\" in\n%s", parts[i], message);
	}
	for (const char *s = message; (s = strstr(s, ": error: ")); s++)
		n_errors++;
	assert_int_equal(n_errors, CT_ARRAY_LEN(parts));
	assert_non_null(strstr(message, "\n11 mistakes"));

	for (int i = 0; i < 70; i++)
		ct_str_addf(&b, "wrong%d: 1\n", i);
	expect("flood", put("flood.yaml", b.s, b.len), ":50:1:", "unknown key");
	assert_null(strstr(ct_error_message(), ":51:1:"));
	assert_non_null(strstr(ct_error_message(), "more problems"));
	ct_str_release(&b);
}

/* The name of the file becomes that of the run. */
static void test_file_name(void **state)
{
	static const char *const names[] = {"a\x1b[31m.yaml", "a\n.yaml", "a\xFF.yaml", "a\xE2\x80\xAE.yaml"};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++)
		expect(names[i], put(names[i], GOOD, strlen(GOOD)), ":1:1:", "set run.name");
	assert_ok(load(put("caf\xC3\xA9.yaml", GOOD, strlen(GOOD))));
	assert_ok(load(put(names[0], GOOD "run: {name: a}\n", strlen(GOOD "run: {name: a}\n"))));
}

/* The line is shown with a mark below the place. Without a line, there is none. */
static void test_excerpts(void **state)
{
	static const struct {
		const char *text, *words;
	} files[] = {
		{"optim:\n  wd: 0.1\n", "\n      2 |   wd: 0.1\n        |   ^^\n"},
		{"run: {name: \"\xC3\xA4\xC3\xA4\"}\noptim: {ler: 1}\n",
		 "\n      2 | optim: {ler: 1}\n        |         ^^^"},
		{"run: {name: \"\xC3\xA4\", sed: 1}\n", "sed: 1}\n        |                  ^^^"},
		{"train:\n\tepochs: 1\n", "\n      2 | \\x09epochs: 1\n        | ^"},
		{"model: [\n", ":2:1: error: did not find expected node content"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		const char *path = put("mark.yaml", files[i].text, strlen(files[i].text));

		assert_int_equal(load(path), CT_CONFIG);
		if (!strstr(ct_error_message(), files[i].words))
			fail_msg("no \"%s\" in\n%s", files[i].words, ct_error_message());
	}
	/* A missing key has no line, and a single mistake is not counted. */
	put("mark.yaml", TEXT("train: {epochs: 1}\nmodel: {name: mlp}\n"));
	assert_int_equal(load(in_tmpdir("mark.yaml")), CT_CONFIG);
	assert_null(strchr(ct_error_message(), '\n'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_file_name),
		cmocka_unit_test(test_excerpts),
		cmocka_unit_test(test_T9_all_at_once),
	};

	unsetenv("CTRAIN_LOG");
	unsetenv("CTRAIN_DATA");
	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
