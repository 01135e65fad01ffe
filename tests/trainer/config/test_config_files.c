/* Configuration files that are cut, too large, nested too deeply or unreadable, or that include each other, and lack of
 * memory: each is an error with its location, and nothing crashes. */
#include <sys/stat.h>

#include "tests/trainer/bad_config.h"

/* Each cut of a good file is either good or an error with a place. */
static void test_truncated(void **state)
{
	static const char text[] =
		"# comment\nmodel: {name: mlp, hidden: [64, 32]}\ndata:\n  name: \"synthetic\"\n  augment:\n"
		"    flip: true\ntrain: &t {epochs: 3}\noptim: {lr: 1e-4}\n";

	(void)state;
	for (size_t n = 0; n < sizeof(text); n++) {
		enum ct_status st = load(put("cut.yaml", text, n));

		assert_true(st == CT_OK || st == CT_CONFIG);
		if (st == CT_CONFIG)
			assert_non_null(strstr(ct_error_message(), "cut.yaml:"));
	}
}

static void test_huge(void **state)
{
	size_t n = (size_t)3 << 20;
	char *text = ct_calloc(n, 1);

	(void)state;
	assert_non_null(text);
	memset(text, '#', n);
	expect("3 MiB", put("huge.yaml", text, n), ":1:1:", "larger than 1 MiB");
	memset(text, '[', n);
	expect("deep", put("deep.yaml", text, (size_t)1 << 20), ":1:18:", "nested more than 16 levels");
	memset(text, 'a', n);
	memcpy(text, "run:\n  name: ", 13);
	expect("long text", put("long.yaml", text, 100000), ":2:9:", "longer than 4096 bytes");
	ct_free(text);
}

static void test_many_values(void **state)
{
	struct ct_str b = {0};

	(void)state;
	ct_str_add(&b, "model: {name: layers}\nlist: [0");
	for (int i = 0; i < 10000; i++)
		ct_str_add(&b, ",0");
	ct_str_add(&b, "]\n");
	assert_ok(ct_str_status(&b));
	expect("many values", put("many.yaml", b.s, b.len), ":2:", "more than 8192 values");
	ct_str_clear(&b);
	for (int i = 0; i < 3000; i++)
		ct_str_addf(&b, "- &a%d [%d]\n", i, i);
	expect("many anchors", put("many.yaml", b.s, b.len), ":1:1:", "this is a list");
	ct_str_release(&b);
}

/* "Billion laughs": nine lists of nine aliases each. */
static void test_alias_bomb(void **state)
{
	struct ct_str b = {0};

	(void)state;
	ct_str_add(&b, "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
	for (int i = 1; i < 9; i++) {
		ct_str_addf(&b, "a%d: &a%d [", i, i);
		for (int k = 0; k < 9; k++)
			ct_str_addf(&b, "%s*a%d", k > 0 ? "," : "", i - 1);
		ct_str_add(&b, "]\n");
	}
	assert_ok(ct_str_status(&b));
	expect("alias bomb", put("bomb.yaml", b.s, b.len), ":4:42:", "the document has more than 8192 values");
	ct_str_release(&b);
}

static void test_base_chains(void **state)
{
	char name[32], text[64];

	(void)state;
	put("c1.yaml", "base: c2.yaml\n", 14);
	put("c2.yaml", "x: 1\nbase: ./c3.yaml\n", 21);
	put("c3.yaml", "base: c1.yaml\n", 14);
	expect("circle of three", in_tmpdir("c1.yaml"), "c3.yaml:1:7:", "circular inheritance");
	/* The rest of the files is looked at all the same. */
	assert_non_null(strstr(ct_error_message(), "c2.yaml:1:1: error: unknown key \"x\""));
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "chain%d.yaml", i);
		snprintf(text, sizeof(text), "base: chain%d.yaml\n", i + 1);
		put(name, text, strlen(text));
	}
	expect("long chain", in_tmpdir("chain0.yaml"), "chain14.yaml:1:7:", "longer than 15");
	put("child.yaml", "base: parent.yml\ntrain: {epochs: 2}\n", 36);
	put("parent.yaml", GOOD, strlen(GOOD));
	expect("misspelt base", in_tmpdir("child.yaml"), "child.yaml:1:7:", "did you mean \"parent.yaml\"?");
	put("parent.yml", "model: {name: [\n", 16);
	expect("broken base", in_tmpdir("child.yaml"), "parent.yml:2:1:", "did not find expected");
}

static void test_unreadable(void **state)
{
	(void)state;
	assert_fails(load(in_tmpdir("nothing.yaml")), CT_CONFIG, "No such file");
	assert_non_null(strstr(ct_error_message(), "nothing.yaml"));
	assert_fails(load(tmpdir), CT_CONFIG, "not a regular file but a directory");
	assert_int_equal(mkfifo(in_tmpdir("fifo.yaml"), 0600), 0);
	assert_fails(load(in_tmpdir("fifo.yaml")), CT_CONFIG, "not a regular file but a FIFO");
	put("child.yaml", "base: fifo.yaml\n", 16);
	assert_fails(load(in_tmpdir("child.yaml")), CT_CONFIG, "not a regular file but a FIFO");
	/* A disk that cannot be read is not a mistake in the configuration. The first page is in no process's memory.
	 */
	assert_fails(load("/proc/self/mem"), CT_IO, "cannot read /proc/self/mem: Input/output error");
	put("mnist.yaml", GOOD, strlen(GOOD));
	assert_fails(load(in_tmpdir("mnsit.yaml")), CT_CONFIG, "did you mean \"mnist.yaml\"?");
}

/* Out of memory at any point is CT_NOMEM (or, where a text was cut short, a problem), never a crash or a leak. */
static void test_no_memory(void **state)
{
	static const char text[] =
		"base: base.yaml\nmodel: {layers: [relu, \"conv2d 3\"], hidden: [1]}\nfoo: 1\noptim: {lr: x, beta1: 0.5}\n";
	const char *path = put("memory.yaml", text, sizeof(text) - 1);
	enum ct_status st = CT_NOMEM;
	uint64_t n;

	(void)state;
	put("base.yaml", GOOD, strlen(GOOD));
	for (n = 1; n < 2000; n++) {
		uint64_t before = ct_mem_count();

		ct_mem_fail_after(n);
		st = ct_config_load(path, NULL, 0, &loaded);
		ct_mem_fail_after(0);
		assert_true(st == CT_NOMEM || st == CT_CONFIG);
		assert_null(loaded);
		if (ct_mem_count() - before < n)
			break;
	}
	assert_int_equal(st, CT_CONFIG);
	assert_true(n > 200 && n < 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncated),   cmocka_unit_test(test_huge),
		cmocka_unit_test(test_many_values), cmocka_unit_test(test_alias_bomb),
		cmocka_unit_test(test_base_chains), cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_no_memory),
	};

	unsetenv("CTRAIN_LOG");
	unsetenv("CTRAIN_DATA");
	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
