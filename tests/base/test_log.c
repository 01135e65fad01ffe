#define CT_LOG_COMPONENT "dist"
#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/check.h"

/* Returns what `emit` writes to standard error, owned. */
static char *capture(const char *folder, void (*emit)(void))
{
	char *path = ct_path_join(folder, "stderr"), *text;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), saved = dup(STDERR_FILENO);
	size_t len;

	assert_true(fd >= 0 && saved >= 0);
	dup2(fd, STDERR_FILENO);
	emit();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd);
	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	ct_free(path);
	return text;
}

static void test_filter(void **state)
{
	(void)state;
	assert_ok(ct_log_configure(""));
	assert_true(ct_log_enabled(CT_LOG_INFO, "dist"));
	assert_false(ct_log_enabled(CT_LOG_DEBUG, "dist"));
	assert_ok(ct_log_configure("warn,dist=debug,data=trace,nn=error"));
	assert_false(ct_log_enabled(CT_LOG_INFO, "trainer"));
	assert_true(ct_log_enabled(CT_LOG_WARN, "trainer"));
	assert_true(ct_log_enabled(CT_LOG_DEBUG, "dist"));
	assert_false(ct_log_enabled(CT_LOG_TRACE, "dist"));
	assert_true(ct_log_enabled(CT_LOG_TRACE, "data"));
	assert_false(ct_log_enabled(CT_LOG_WARN, "nn"));
	assert_ok(ct_log_configure("data=trace,data=info"));
	assert_false(ct_log_enabled(CT_LOG_DEBUG, "data"));
	assert_true(ct_log_enabled(CT_LOG_INFO, "data"));
}

static void test_bad_levels_change_nothing(void **state)
{
	(void)state;
	assert_ok(ct_log_configure("debug"));
	assert_fails(ct_log_configure("error,dist=wran"), CT_CONFIG, "\"wran\"");
	assert_non_null(strstr(ct_error_hint_text(), "\"warn\""));
	assert_fails(ct_log_configure("loud"), CT_CONFIG, "\"loud\"");
	assert_fails(ct_log_configure("dist="), CT_CONFIG, "level");
	assert_fails(ct_log_configure("=debug"), CT_CONFIG, "component");
	assert_fails(ct_log_configure("averyveryverylongname=debug"), CT_CONFIG, "component");
	assert_fails(ct_log_configure("a=warn,b=warn,c=warn,d=warn,e=warn,f=warn,g=warn,h=warn,i=warn,j=warn,k=warn,"
				      "l=warn,m=warn,n=warn,o=warn,p=warn,q=warn"),
		     CT_CONFIG, "16");
	assert_true(ct_log_enabled(CT_LOG_DEBUG, "dist"));
	assert_true(ct_log_enabled(CT_LOG_INFO, "nn"));
}

static void emit_lines(void)
{
	CT_INFO("plain %d", 1);
	CT_DEBUG("not %s", "shown");
	CT_ERROR("two\nlines \x1b[31mred \xff h\xC3\xA9");
}

static void test_lines(void **state)
{
	char *text;
	int h, m, ms;
	double s;

	assert_ok(ct_log_configure("info"));
	ct_log_set_rank(-1, 0);
	text = capture(*state, emit_lines);
	assert_int_equal(sscanf(text, "%2d:%2d:%2lf", &h, &m, &s), 3);
	assert_int_equal(sscanf(text + 9, "%3d", &ms), 1);
	assert_int_equal(text[8], '.');
	assert_ptr_equal(strstr(text, " info dist: plain 1\n"), text + 12);
	assert_non_null(strstr(text, " error dist: two\\x0alines \\x1b[31mred \\xff h\xC3\xA9\n"));
	assert_null(strstr(text, "shown"));
	ct_free(text);
	ct_log_set_rank(1, 4);
	text = capture(*state, emit_lines);
	assert_non_null(strstr(text, " info 1/4 dist: plain 1\n"));
	ct_free(text);
	ct_log_set_rank(-1, 0);
}

static void emit_long(void)
{
	char big[8192];

	memset(big, 1, sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	CT_INFO("%s", big); /* escaping makes it four times as long */
	memset(big, 'x', sizeof(big) - 1);
	CT_INFO("%s", big);
	big[1900] = '\0';
	CT_INFO("%s", big);
}

static void test_long_lines_are_cut(void **state)
{
	char *text = capture(*state, emit_long), *line, *rest = text;
	size_t len[3];

	for (int i = 0; i < 3; i++) {
		line = strsep(&rest, "\n");
		assert_non_null(line);
		len[i] = strlen(line);
		assert_int_equal(strcmp(line + len[i] - 3, "...") == 0, i < 2);
	}
	assert_string_equal(rest, "");
	assert_in_range(len[0], 4000, 4095);
	assert_true(len[2] > 1900);
	ct_free(text);
}

static void test_file_and_no_memory(void **state)
{
	char *path = ct_path_join(*state, "rank.log"), *text, *shown;
	uint64_t before;
	size_t len;

	assert_ok(ct_file_replace(path, "old\n", 4));
	assert_ok(ct_log_open_file(path));
	before = ct_mem_count();
	CT_INFO("not captured");
	assert_int_equal(ct_mem_count(), before);
	shown = capture(*state, emit_lines);
	ct_log_close();
	ct_log_close();
	CT_INFO("after closing");
	assert_ok(ct_file_read(path, 1 << 20, &text, &len));
	assert_memory_equal(text, "old\n", 4);
	assert_non_null(strstr(text, "not captured\n"));
	assert_non_null(strstr(text, "plain 1\n")); /* info lines go only to the file */
	assert_null(strstr(shown, "plain 1\n"));
	assert_non_null(strstr(shown, " error dist: two"));
	assert_non_null(strstr(text, strstr(shown, " error dist: two")));
	/* ct_log_show_info moves info lines to or from standard error. */
	struct {
		enum ct_log_info when;
		bool file, shown;
	} cases[] = {{CT_LOG_INFO_ALWAYS, true, true},
		     {CT_LOG_INFO_NEVER, false, false},
		     {CT_LOG_INFO_WITHOUT_FILE, false, true}};
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		if (cases[i].file)
			assert_ok(ct_log_open_file(path));
		ct_log_show_info(cases[i].when);
		char *again = capture(*state, emit_lines);
		assert_int_equal(strstr(again, "plain 1\n") != NULL, cases[i].shown);
		assert_non_null(strstr(again, " error dist: two"));
		ct_free(again);
		ct_log_close();
	}
	assert_null(strstr(text, "after closing"));
	assert_fails(ct_log_open_file("/nonexistent/x.log"), CT_IO, "/nonexistent/x.log");
	/* ct_log_check detects that the file was removed. */
	assert_ok(ct_log_check());
	assert_ok(ct_log_open_file(path));
	assert_ok(ct_log_check());
	assert_int_equal(unlink(path), 0);
	assert_fails(ct_log_check(), CT_IO, "rank.log was removed");
	ct_log_close();
	assert_ok(ct_log_check());
	/* A link and a FIFO are refused, and the log does not change. */
	char *link = ct_path_join(*state, "link.log"), *fifo = ct_path_join(*state, "fifo.log");
	assert_int_equal(symlink("rank.log", link), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_fails(ct_log_open_file(link), CT_IO, "symbolic link");
	assert_fails(ct_log_open_file(fifo), CT_IO, "FIFO");
	ct_free(link);
	ct_free(fifo);
	ct_free(text);
	ct_free(shown);
	ct_free(path);
}

static void before_line(void *user)
{
	(*(int *)user)++;
	(void)!write(STDERR_FILENO, "<", 1);
}

static void test_before_each_line(void **state)
{
	char *text;
	int n = 0;

	assert_ok(ct_log_configure("info"));
	ct_log_set_before(before_line, &n);
	text = capture(*state, emit_lines);
	ct_log_set_before(NULL, NULL);
	/* It is not called for lines that are filtered out. */
	assert_int_equal(n, 2);
	assert_int_equal(text[0], '<');
	assert_non_null(strstr(text, "plain 1\n<"));
	ct_free(text);
	ct_free(capture(*state, emit_lines));
	assert_int_equal(n, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_filter),
		cmocka_unit_test(test_bad_levels_change_nothing),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_long_lines_are_cut),
		cmocka_unit_test(test_file_and_no_memory),
		cmocka_unit_test(test_before_each_line),
	};

	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
