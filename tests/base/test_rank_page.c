/* The pages of ranks: what a process that was killed leaves, the clock, and what does not fit. */
#include "base/process/rank_page.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/check.h"

static void test_position_text(void **state)
{
	static const struct {
		struct ct_position at;
		const char *text;
	} cases[] = {
		{{CT_RANK_TRAINING, 120, 7}, "training, step 120"},
		{{CT_RANK_UNKNOWN, 3, -1}, "step 3"},
		{{CT_RANK_JOINING, -1, -1}, "joining"},
		{{CT_RANK_UNKNOWN, -1, 9}, ""},
		{{CT_RANK_SEARCHING, INT64_MAX, -1}, "searching for NaN, step 9223372036854775807"},
	};
	char text[CT_POSITION_TEXT];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct_position_text(text, sizeof(text), &cases[i].at);
		assert_string_equal(text, cases[i].text);
	}
}

/* A process without a launcher has a page, too. */
static void test_private_page(void **state)
{
	struct ct_position at = ct_rank_page_position(ct_rank_page_own());

	(void)state;
	assert_false(ct_rank_page_is_shared());
	assert_int_equal(at.phase, CT_RANK_UNKNOWN);
	assert_int_equal(at.step, -1);
	assert_int_equal(at.collective, -1);
	assert_int_equal(ct_rank_page_posted_step(), -1);
}

static void fill_and_die(int fd)
{
	char *area;

	if (ct_rank_page_join(fd, 1, 2) < 0)
		_exit(1);
	(void)ct_rank_page_enter(CT_RANK_COMPILING, -1);
	ct_rank_page_count_steps(7);
	if (!ct_rank_page_enter(CT_RANK_TRAINING, 7) || ct_rank_page_enter(CT_RANK_TRAINING, 8))
		_exit(2);
	ct_rank_page_count_collectives(41);
	ct_rank_thread_enter();
	ct_rank_thread_doing(CT_DOING_SAMPLE, 3);
	ct_rank_thread_number(4);
	area = ct_rank_area_take(8);
	memcpy(area, "content", 8);
	(void)ct_rank_area_return(area);
	(void)ct_rank_area_take(8);
	CT_FAIL(CT_DATA, "no %s", "such file");
	ct_error_hint("look");
	if (!ct_rank_page_fail(ct_rank_page_own(), CT_DATA))
		_exit(3);
	CT_FAIL(CT_IO, "a second failure");
	if (ct_rank_page_fail(ct_rank_page_own(), CT_IO))
		_exit(4);
	ct_rank_page_freeze();
	(void)ct_rank_page_enter(CT_RANK_SAVING, 9);
	(void)raise(SIGKILL);
}

static void test_outlives_process(void **state)
{
	const struct ct_rank_page *p;
	const struct ct_error *e;
	struct ct_rank_pages pages;
	struct ct_position at;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(ct_rank_pages_create(2, &pages), CT_OK);
	pid = fork();
	if (pid == 0)
		fill_and_die(pages.fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	p = ct_rank_pages_at(&pages, 1);
	at = ct_rank_page_position(p);
	assert_int_equal(p->pid, pid);
	assert_int_equal(at.phase, CT_RANK_TRAINING);
	assert_int_equal(at.step, 8);
	assert_int_equal(at.collective, 41);
	assert_true(ct_rank_phase_has_worked(at.phase));
	assert_int_equal(p->threads[0].tid, pid);
	assert_string_equal(ct_doing_text(p->threads[0].doing), "loads sample");
	assert_int_equal(p->threads[0].number, 4);
	assert_string_equal((const char *)p->areas[0].data, "content"); /* the second request got another area */
	assert_non_null(e = ct_rank_page_error(p));
	assert_int_equal(e->status, CT_DATA); /* the first failure stays */
	assert_string_equal(e->message, "no such file");
	assert_string_equal(e->hint, "look");
	/* The other page is untouched. */
	assert_int_equal(ct_rank_pages_at(&pages, 0)->pid, 0);
	assert_null(ct_rank_page_error(ct_rank_pages_at(&pages, 0)));
	assert_false(ct_rank_phase_has_worked(ct_rank_page_position(ct_rank_pages_at(&pages, 0)).phase));

	ct_rank_pages_clear(&pages);
	assert_int_equal(p->pid, 0);
	assert_null(ct_rank_page_error(p));
	assert_int_equal(ct_rank_page_position(p).step, -1);
	assert_int_equal(p->areas[0].data[0], 0);
	ct_rank_pages_close(&pages);
}

static void test_requests(void **state)
{
	static struct ct_rank_page p;

	(void)state;
	assert_false(ct_rank_page_is_requested(&p, CT_REQUEST_REGROUP));
	assert_true(ct_rank_page_request(&p, CT_REQUEST_REGROUP));
	assert_false(ct_rank_page_request(&p, CT_REQUEST_REGROUP));
	assert_true(ct_rank_page_is_requested(&p, CT_REQUEST_REGROUP));
	assert_false(ct_rank_page_is_fulfilled(&p, CT_REQUEST_REGROUP));
	ct_rank_page_fulfill(&p, CT_REQUEST_REGROUP);
	assert_true(ct_rank_page_is_fulfilled(&p, CT_REQUEST_REGROUP));
}

/* The clock of the launcher is that of the ranks, also while it is halted, and goes on when the pages are cleared. */
static void test_clock(void **state)
{
	struct ct_rank_pages pages;
	int status, halted[2];
	pid_t pid;

	(void)state;
	assert_int_equal(ct_rank_pages_create(1, &pages), CT_OK);
	assert_int_equal(pipe(halted), 0);
	pid = fork();
	if (pid == 0) {
		char c;

		if (ct_rank_page_join(pages.fd, 0, 1) < 0 || read(halted[0], &c, 1) != 1)
			_exit(1);
		const int64_t now = ct_now_ns();

		for (int i = 0; i < 1000; i++) {
			if (ct_now_ns() != now)
				_exit(2);
		}
		_exit(0);
	}
	ct_clock_halt();
	const int64_t at = ct_now_ns();

	assert_int_equal(write(halted[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ct_rank_pages_clear(&pages);
	assert_true(ct_now_ns() == at);
	ct_clock_resume();
	const int64_t behind = ct_clock_halted_ns();

	assert_true(behind > 0);
	ct_rank_pages_close(&pages);
	assert_true(ct_clock_halted_ns() == behind);
	close(halted[0]);
	close(halted[1]);
}

/* Another program finds the page of a rank through the launcher, which is this process. */
static void test_read_by_others(void **state)
{
	struct ct_rank_pages pages;
	struct ct_rank_view v;
	int status, joined[2], end[2];
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(ct_rank_pages_create(2, &pages), CT_OK);
	assert_int_equal(pipe(joined), 0);
	assert_int_equal(pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		if (ct_rank_page_join(pages.fd, 1, 2) < 0)
			_exit(1);
		(void)ct_rank_page_enter(CT_RANK_SAVING, 5);
		_exit(write(joined[1], "x", 1) == 1 && read(end[0], &c, 1) == 1 ? 0 : 2);
	}
	assert_int_equal(read(joined[0], &c, 1), 1);
	ct_rank_view_open(pid, &v);
	assert_non_null(v.page);
	assert_int_equal(ct_rank_page_position(v.page).phase, CT_RANK_SAVING);
	assert_int_equal(ct_rank_page_position(v.page).step, 5);
	assert_int_equal(write(end[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ct_rank_pages_close(&pages);
	assert_int_equal(ct_rank_page_position(v.page).step, 5); /* the map outlives launcher and rank */
	ct_rank_view_close(&v);
	ct_rank_view_open((int)getpid(), &v); /* its parent is no launcher */
	assert_null(v.page);
	ct_rank_view_open(0, &v);
	assert_null(v.page);
	ct_rank_view_close(&v);
}

static void test_does_not_fit(void **state)
{
	struct ct_rank_pages pages;
	char name[] = "/tmp/ctrain-page-XXXXXX";
	const int file = mkstemp(name);

	(void)state;
	assert_true(file >= 0);
	assert_int_equal(ct_rank_pages_create(2, &pages), CT_OK);
	assert_int_equal(ct_rank_page_join(pages.fd, 2, 2), CT_USAGE);
	assert_int_equal(ct_rank_page_join(pages.fd, -1, 2), CT_USAGE);
	assert_int_equal(ct_rank_page_join(pages.fd, 0, 1), CT_USAGE);
	assert_int_equal(ct_rank_page_join(pages.fd, -1, -1), CT_USAGE);
	assert_int_equal(ct_rank_page_join(-1, 0, 2), CT_USAGE);
	/* Another file may have the number that an old environment names. */
	assert_int_equal(ct_rank_page_join(file, 0, 2), CT_USAGE);
	assert_int_equal(ftruncate(file, 1 << 20), 0);
	assert_int_equal(ct_rank_page_join(file, 0, 2), CT_USAGE);
	++*(uint32_t *)pages.map; /* the version */
	assert_int_equal(ct_rank_page_join(pages.fd, 0, 2), CT_USAGE);
	assert_false(ct_rank_page_is_shared());
	ct_rank_pages_close(&pages);
	assert_null(ct_rank_area_take(CT_RANK_AREA_BYTES + 1));
	close(file);
	(void)unlink(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_position_text),
		cmocka_unit_test(test_private_page),
		cmocka_unit_test(test_outlives_process),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_clock),
		cmocka_unit_test(test_does_not_fit),
		cmocka_unit_test(test_read_by_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
