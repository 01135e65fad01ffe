/* The command line: accepted and refused arguments, their results, and whether the help shows exactly the options that
 * the parser accepts. The commands themselves are stubs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/pages.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/help/help.h"

#define STAND_IN(name)                              \
	enum ct_status name(const struct ct_cli *c) \
	{                                           \
		(void)c;                            \
		return CT_OK;                       \
	}
STAND_IN(ct_cmd_train)
STAND_IN(ct_cmd_eval)
STAND_IN(ct_cmd_plan)
STAND_IN(ct_cmd_check)
STAND_IN(ct_cmd_config_docs)
STAND_IN(ct_cmd_config_schema)
STAND_IN(ct_cmd_config_dump)
STAND_IN(ct_cmd_info)
STAND_IN(ct_cmd_doctor)
STAND_IN(ct_cmd_explain)
STAND_IN(ct_cmd_data_digits)
STAND_IN(ct_cmd_ckpt_show)
STAND_IN(ct_cmd_ckpt_verify)
STAND_IN(ct_cmd_bench_step)
STAND_IN(ct_cmd_bench_loader)
STAND_IN(ct_cmd_bench_comm)

#define MAX_WORDS 32

/* A blank-separated line as argv. */
static enum ct_status parse(const char *line, struct ct_cli *out)
{
	static char text[512];
	static char *argv[MAX_WORDS];
	int argc = 0;
	char *rest;

	snprintf(text, sizeof(text), "ctrain %s", line);
	for (char *s = strtok_r(text, " ", &rest); s; s = strtok_r(NULL, " ", &rest))
		argv[argc++] = s;
	argv[argc] = NULL;
	return ct_cli_parse(&ct_commands, argc, argv, out);
}

/* The sets of a line as "key=value@origin ...". */
static void expect_sets(const char *line, const char *want)
{
	struct ct_str b = {0};
	struct ct_cli cli;

	assert_ok(parse(line, &cli));
	assert_ptr_equal(cli.command->run, ct_cmd_train);
	assert_string_equal(cli.args[0], "x.yaml");
	for (size_t i = 0; i < cli.n_sets; i++)
		ct_str_addf(&b, "%s%s=%s@%s", i > 0 ? " " : "", cli.sets[i].key, cli.sets[i].value, cli.sets[i].origin);
	if (strcmp(ct_str_text(&b), want) != 0)
		fail_msg("%s: %s instead of %s", line, ct_str_text(&b), want);
	ct_str_release(&b);
	ct_cli_release(&cli);
}

static void test_sets(void **state)
{
	(void)state;
	expect_sets("x.yaml", "");
	expect_sets("train x.yaml", "");
	expect_sets("x.yaml optim.lr=0.1 run.name=", "optim.lr=0.1@argument 2 run.name=@argument 3");
	expect_sets("x.yaml data.dir=a=b", "data.dir=a=b@argument 2");
	expect_sets("x.yaml -- optim.lr=-1", "optim.lr=-1@argument 3");
	/* In the order of the line: the last one wins. */
	expect_sets("launch.procs=1 x.yaml --procs 2 launch.procs=3",
		    "launch.procs=1@argument 1 launch.procs=2@--procs launch.procs=3@argument 5");
}

static void test_launch_options(void **state)
{
	(void)state;
	expect_sets("x.yaml --procs 4", "launch.procs=4@--procs");
	expect_sets("x.yaml --procs=auto", "launch.procs=auto@--procs");
	expect_sets("x.yaml --procs 8,2 --nodes 2", "launch.procs_list=8,2@--procs launch.nodes=2@--nodes");
	expect_sets(
		"x.yaml --node-rank 1 --master-addr h --master-port 29500 --init tcp://h:1 --devices 0,2",
		"launch.node_rank=1@--node-rank launch.master_addr=h@--master-addr launch.master_port=29500@--master-port "
		"launch.init=tcp://h:1@--init launch.devices=0,2@--devices");
}

static void test_torchrun_spellings(void **state)
{
	(void)state;
	expect_sets("--nproc_per_node 2 x.yaml", "launch.procs=2@--nproc_per_node");
	expect_sets("--nproc-per-node=2 x.yaml", "launch.procs=2@--nproc-per-node");
	expect_sets("--nproc_per-node=gpu x.yaml", "device=cuda@--nproc_per-node launch.procs=auto@--nproc_per-node");
	expect_sets("--nproc_per_node=cpu x.yaml", "device=cpu@--nproc_per_node launch.procs=auto@--nproc_per_node");
	expect_sets("--standalone --nnodes=1 x.yaml", "launch.nodes=1@--standalone launch.nodes=1@--nnodes");
	expect_sets(
		"--nnodes 2:4 --node_rank=1 --master_addr=10.0.0.1 --master_port=1234 x.yaml",
		"launch.nodes=2:4@--nnodes launch.node_rank=1@--node_rank launch.master_addr=10.0.0.1@--master_addr "
		"launch.master_port=1234@--master_port");
	expect_sets(
		"--rdzv_backend=c10d --rdzv_id=7 --rdzv_endpoint=host:29400 --max_restarts=0 x.yaml",
		"dist.run_id=7@--rdzv_id launch.master_addr=host@--rdzv_endpoint launch.master_port=29400@--rdzv_endpoint "
		"launch.restarts=0@--max_restarts");
	expect_sets("--restarts 3 x.yaml", "launch.restarts=3@--restarts");
	expect_sets("--rdzv-endpoint host x.yaml", "launch.master_addr=host@--rdzv-endpoint");
	expect_sets("--rdzv-endpoint [::1]:5 x.yaml",
		    "launch.master_addr=[::1]@--rdzv-endpoint launch.master_port=5@--rdzv-endpoint");
	expect_sets("--rdzv-endpoint ::1 x.yaml", "launch.master_addr=::1@--rdzv-endpoint");
	/* The mnist-distributed tutorial's. */
	expect_sets("-n 2 -g 8,2 -i 0 x.yaml", "launch.nodes=2@-n launch.procs_list=8,2@-g launch.node_rank=0@-i");
}

static void test_commands(void **state)
{
	static const struct {
		const char *line;
		enum ct_status (*run)(const struct ct_cli *cli);
		const char *arg;
	} lines[] = {
		{"a/b.yml", ct_cmd_train, "a/b.yml"},
		{"plan x.yaml", ct_cmd_plan, "x.yaml"},
		{"check x.yaml optim.lr=1", ct_cmd_check, "x.yaml"},
		{"eval x.yaml --checkpoint best --json", ct_cmd_eval, "x.yaml"},
		{"config dump x.yaml --origins", ct_cmd_config_dump, "x.yaml"},
		{"config docs", ct_cmd_config_docs, NULL},
		{"config schema -o f", ct_cmd_config_schema, NULL},
		{"ckpt show p", ct_cmd_ckpt_show, "p"},
		{"ckpt verify p", ct_cmd_ckpt_verify, "p"},
		{"data digits --out d --train 5 --test 6 --seed 7", ct_cmd_data_digits, NULL},
		{"info --json", ct_cmd_info, NULL},
		{"bench step x.yaml --steps 5", ct_cmd_bench_step, "x.yaml"},
		{"bench loader x.yaml", ct_cmd_bench_loader, "x.yaml"},
		{"bench comm x.yaml --procs 3", ct_cmd_bench_comm, "x.yaml"},
	};
	const struct ct_digits_options *digits;
	struct ct_cli cli;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++) {
		if (parse(lines[i].line, &cli) != CT_OK)
			fail_msg("%s: %s", lines[i].line, ct_error_message());
		assert_ptr_equal(cli.command->run, lines[i].run);
		assert_int_equal(cli.n_args, lines[i].arg ? 1 : 0);
		if (lines[i].arg)
			assert_string_equal(cli.args[0], lines[i].arg);
		ct_cli_release(&cli);
	}
	assert_ok(parse("data digits --out d --train 5 --test 6 --seed 7", &cli));
	digits = cli.own;
	assert_string_equal(cli.out, "d");
	assert_string_equal(digits->train, "5");
	assert_string_equal(digits->test, "6");
	assert_string_equal(digits->seed, "7");
	ct_cli_release(&cli);
	assert_ok(parse("eval x.yaml --checkpoint best --json", &cli));
	assert_string_equal(cli.checkpoint, "best");
	assert_true(cli.json && !((const struct ct_eval_options *)cli.own)->report);
	assert_int_equal(cli.argc, 6);
	assert_string_equal(cli.argv[5], "--json");
	ct_cli_release(&cli);
}

/* The same name is an option of several commands, each with a struct of its own. */
static void test_own_options(void **state)
{
	struct ct_cli cli;

	(void)state;
	assert_ok(parse("data check d --labels a.csv", &cli));
	assert_string_equal(((const struct ct_check_options *)cli.own)->labels, "a.csv");
	ct_cli_release(&cli);
	assert_ok(parse("data show x.yaml --seed 3 --mixup", &cli));
	const struct ct_show_options *show = cli.own;

	assert_string_equal(show->seed, "3");
	assert_true(show->mixup && !show->before_after && !show->epoch);
	ct_cli_release(&cli);
	assert_ok(parse("info --report", &cli));
	assert_true(((const struct ct_info_options *)cli.own)->report);
	ct_cli_release(&cli);
	assert_ok(parse("plan x.yaml --simulate 1x1 --link-inter eth10", &cli));
	const struct ct_plan_options *plan = cli.own;

	assert_string_equal(plan->simulate.link_inter, "eth10");
	assert_true(!plan->assume && !plan->no_measure && !plan->simulate.link_intra);
	ct_cli_release(&cli);
	assert_ok(parse("ckpt show p", &cli));
	assert_null(cli.own);
	ct_cli_release(&cli);
}

/* A file of any name is a configuration when it is there. */
static void test_existing_file(void **state)
{
	char line[600];
	struct ct_cli cli;

	(void)state;
	assert_ok(ct_file_replace(in_tmpdir("config.txt"), "x", 1));
	snprintf(line, sizeof(line), "%s", in_tmpdir("config.txt"));
	assert_ok(parse(line, &cli));
	assert_ptr_equal(cli.command->run, ct_cmd_train);
	ct_cli_release(&cli);
}

static void refuse(const char *line, const char *message, const char *hint, enum ct_status want)
{
	struct ct_cli cli;
	enum ct_status st = parse(line, &cli);

	if (st == CT_OK && cli.command->run == ct_cmd_help)
		st = ct_cmd_help(&cli);
	if (st != want || !strstr(ct_error_message(), message) || !strstr(ct_error_hint_text(), hint))
		fail_msg("%s: %s \"%s\" hint \"%s\"", line, ct_status_name(st), ct_error_message(),
			 ct_error_hint_text());
	assert_int_equal(ct_status_exit_code(st), 2);
	ct_cli_release(&cli);
}

static void test_refused(void **state)
{
	static const char *const lines[][3] = {
		/* {line, message, hint} */
		{"", "no configuration file is given", "ctrain --help"},
		{"optim.lr=1", "no configuration file is given", ""},
		{"trian x.yaml", "\"trian\" is neither", "did you mean \"train\"?"},
		{"plna x.yaml", "\"plna\"", "did you mean \"plan\"?"},
		{"test runs/x", "\"test\" is neither", "did you mean \"eval\"?"},
		{"new", "\"new\" is neither", "did you mean \"init\"?"},
		{"zzz", "\"zzz\"", "ctrain --help"},
		{"ckpt", "\"ckpt\" is incomplete: it needs a subcommand", "ctrain help ckpt"},
		{"ckpt shwo p", "unknown command \"ckpt shwo\"", "did you mean \"ckpt show\"?"},
		{"x.yaml --prcos 2", "unknown option \"--prcos\"", "did you mean --procs?"},
		{"x.yaml --nproc_per_nod=2", "unknown option \"--nproc_per_nod\"", "did you mean --nproc-per-node?"},
		{"x.yaml --optim.lr=2", "unknown option", "KEY=VALUE, without dashes"},
		{"x.yaml -procs 2", "unknown option", "--procs"},
		{"x.yaml --n 2", "unknown option", ""},
		{"x.yaml --procs", "--procs needs a value: N|auto|A,B,..", ""},
		{"x.yaml --procs --nodes 2", "--procs needs a value", ""},
		{"x.yaml --standalone=1", "--standalone takes no value", ""},
		{"x.yaml y.yaml", "unexpected argument \"y.yaml\"", "usage: ctrain train"},
		{"plan", "plan needs CONFIG.yaml", ""},
		{"info --procs 2", "--procs cannot be used with info", "ctrain help info"},
		{"info optim.lr=2", "info takes no KEY=VALUE", ""},
		{"train.py", "\"train.py\" is neither a command", "ctrain import \"python train.py"},
		{"torchrun --nproc_per_node=2 train.py", "\"torchrun\" is neither", "ctrain import \"torchrun"},
		{"resnet50", "\"resnet50\" is neither",
		 "resnet50_imagenet, resnet50_imagenet_fast, resnet50_imagenet_gpu"},
		{"x.yaml --batch-size 64 --lr 0.1 --wd=1", "unknown option \"--batch-size\"",
		 "; instead of --lr: optim.lr=0.1; instead of --wd=1: optim.weight_decay=1"},
		{"x.yaml optim.lr 0.1", "unexpected argument \"optim.lr\"", "optim.lr=0.1"},
		{"x.yaml --config y.yaml", "--config cannot be used with train", ""},
		{"--config x.yaml", "no command is given", "ctrain x.yaml"},
		{"--cfg x.yaml", "unknown option \"--cfg\"", "without an option: ctrain x.yaml"},
		{"runs --config x.yaml", "--config cannot be used with runs", ""},
		{"eval x.yaml --filter state=done", "--filter cannot be used with eval", ""},
		{"runs --report", "--report cannot be used with runs", ""},
		{"x.yaml --checkpoint best", "--checkpoint cannot be used with train", ""},
		{"x.yaml --rdzv_endpoint :5", "expected HOST", ""},
		{"help nonsense", "\"nonsense\" is not a command", ""},
		{"help optim.lrr", "not a command, a config key", "did you mean \"ctrain help optim.lr\"?"},
		{"help optim.Lr", "\"optim.Lr\"", "did you mean \"ctrain help optim.lr\"?"},
		{"help optimizer", "\"optimizer\"", "did you mean \"ctrain help optim\"?"},
		{"help pln", "\"pln\"", "did you mean \"ctrain help plan\"?"},
		{"help qqqqqqqq", "not a command, a config key", "ctrain help --search qqqqqqqq"},
		{"-z x.yaml", "unknown option \"-z\"", ""},
		{"--q x.yaml", "unknown option \"--q\"", ""},
		{"x.yaml ---procs 2", "unknown option \"---procs\"", ""},
		{"x.yaml --max-steps=3", "unknown option \"--max-steps\"", "without dashes: train.max_steps=3"},
		{"x.yaml --device cuda", "unknown option \"--device\"", "without dashes: device=cuda"},
		{"x.yaml --batch-size 32", "unknown option \"--batch-size\"", "batch.per_rank=32"},
		{"x.yaml --resume --procs 2", "unknown option \"--resume\"", "train.resume=auto (the default"},
		{"--resume x.yaml", "unknown option \"--resume\"", "train.resume=auto (the default"},
		{"x.yaml --amp optim.lr=1", "unknown option \"--amp\"", "precision=bf16"},
		{"x.yaml --gpu", "unknown option \"--gpu\"", "device=cuda"},
		{"x.yaml --wandb", "unknown option \"--wandb\"", "TensorBoard"},
		{"x.yaml --seed 3", "--seed cannot be used with train", "run.seed=3"},
		{"x.yaml -b 32", "-b cannot be used with train", "batch.per_rank=32"},
		{"help ckpt nonsense", "unknown command \"ckpt nonsense\"", ""},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++)
		refuse(lines[i][0], lines[i][1], lines[i][2], CT_USAGE);
	refuse("x.yaml --rdzv_backend etcd", "c10d or static", "", CT_UNSUPPORTED);
}

/* A line that uses the option with the command, with a value that its text shows. */
static void option_line(const struct ct_command *c, const struct ct_option *o, const char *name, size_t len,
			char line[256])
{
	static const char *const args[] = {"", "x.yaml", "x.yaml y"};

	snprintf(line, 256, "%s%s%s %s --%.*s%s%s", c->name, c->sub ? " " : "", c->sub ? c->sub : "", args[c->min_args],
		 (int)len, name, o->value ? " " : "", o->value ? "1" : "");
}

/* Every option of a help page is taken by the parser for that command, and every option the parser takes is on the
 * page, apart from launch options of commands that start no ranks. */
static void test_T11_help_and_parser(void **state)
{
	const struct ct_command *c;
	const struct ct_option *o;
	size_t n_checked = 0;

	(void)state;
	for (size_t i = 0; (c = ct_command_at(&ct_commands, i)) && c->run != ct_cmd_help; i++) {
		struct ct_str page = {0};

		ct_help_page(&ct_commands, c, &page);
		assert_true((c->max_args <= CT_MAX_ARGS || c->max_args == CT_ANY_ARGS) && c->doc[0]);
		for (const char *s = strstr(page.s, "\noptions\n"); (s = strstr(s, "\n  --")); s++) {
			size_t len = strcspn(s + 5, " \n");
			char line[256];
			struct ct_cli cli;
			enum ct_status st;

			o = ct_option_find(&ct_commands, s + 5, len);
			if (!o)
				fail_msg("help of %s shows --%.*s, which is unknown", c->name, (int)len, s + 5);
			if (o->kind == CT_OPTION_HELP || o->kind == CT_OPTION_VERSION)
				continue;
			option_line(c, o, s + 5, len, line);
			st = parse(line, &cli);
			if (st != CT_OK)
				fail_msg("%s: %s", line, ct_error_message());
			ct_cli_release(&cli);
			n_checked++;
		}
		for (size_t k = 0; (o = ct_option_at(&ct_commands, k)); k++) {
			char line[256], shown[64];
			struct ct_cli cli;
			size_t len = strcspn(o->names, " ");

			/* Commands that start no ranks accept the launch options, too, but do not list them. */
			if (!o->doc || o->group == CT_OPT_ALL ||
			    (o->group == CT_OPT_SETS && !(c->options & CT_OPT_LAUNCH)))
				continue;
			option_line(c, o, o->names, len, line);
			snprintf(shown, sizeof(shown), "\n  --%.*s", (int)len, o->names);
			const char *at = strstr(page.s, shown);
			while (at && !strchr(" \n", at[strlen(shown)]))
				at = strstr(at + 1, shown);
			if ((parse(line, &cli) == CT_OK) != (at != NULL))
				fail_msg("%s: parser and help disagree", line);
			ct_cli_release(&cli);
		}
		ct_str_release(&page);
	}
	assert_true(n_checked > 50);
}

static void test_overview(void **state)
{
	const struct ct_command *c;
	const struct ct_option *o;
	struct ct_str page = {0};

	(void)state;
	ct_help_page(&ct_commands, NULL, &page);
	for (size_t i = 0; (c = ct_command_at(&ct_commands, i)); i++)
		assert_true(has_words(page.s, c->doc));
	for (size_t i = 0; (o = ct_option_at(&ct_commands, i)); i++) {
		if (o->group == CT_OPT_SETS && o->doc)
			assert_true(has_words(page.s, o->doc));
	}
	for (int code = 2; code < 8; code++) {
		char number[16];

		snprintf(number, sizeof(number), "%d ", code);
		assert_non_null(strstr(page.s, number));
	}
	ct_str_release(&page);
	/* Config keys that options set exist. */
	for (size_t i = 0; (o = ct_option_at(&ct_commands, i)); i++) {
		if (o->key) {
			page = (struct ct_str){0};
			assert_true(ct_config_help(o->key, &page));
			ct_str_release(&page);
		}
	}
}

static void test_help_words(void **state)
{
	static const char *const lines[] = {
		"--help",        "-h",         "help",        "help plan",      "plan --help",
		"x.yaml --help", "help ckpt",  "ckpt --help", "help ckpt show", "ckpt show -h",
		"help optim.lr", "help optim", "--version",   "bogus --help"};
	struct ct_cli cli;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++) {
		assert_ok(parse(lines[i], &cli));
		assert_true(cli.command->run == ct_cmd_help || cli.command->run == ct_cmd_version);
		assert_ok(cli.command->run(&cli));
		ct_cli_release(&cli);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_launch_options),
		cmocka_unit_test(test_torchrun_spellings),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_own_options),
		cmocka_unit_test(test_existing_file),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_T11_help_and_parser),
		cmocka_unit_test(test_overview),
		cmocka_unit_test(test_help_words),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
