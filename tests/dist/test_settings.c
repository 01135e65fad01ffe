/* The checks of NCCL's and gloo's settings. Where libnccl.so.2 is installed, its own choice of network interfaces is
 * compared with ours. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "dist/net/net.h"
#include "dist/settings/nccl_log.h"
#include "dist/settings/settings.h"

/* Sets one variable, and returns its state. why has the reason and the hint. */
static enum ct_setting_state state_of(const char *name, const char *value, char *why, size_t len)
{
	enum ct_setting_state state = CT_SETTING_FINE;
	struct ct_settings s;
	bool found = false;

	assert_int_equal(setenv(name, value, 1), 0);
	assert_int_equal(ct_settings_read("", &s), CT_OK);
	for (size_t i = 0; i < s.n; i++) {
		assert_true(i == 0 || strcmp(s.all[i - 1].name, s.all[i].name) < 0);
		if (strcmp(s.all[i].name, name) != 0)
			continue;
		found = true;
		state = s.all[i].state;
		snprintf(why, len, "%s; %s", s.all[i].why, s.all[i].hint);
	}
	assert_true(found);
	ct_settings_release(&s);
	unsetenv(name);
	return state;
}

static void expect(enum ct_setting_state want, const char *name, const char *value, const char *says)
{
	char why[640];
	const enum ct_setting_state got = state_of(name, value, why, sizeof(why));

	if (got != want || !strstr(why, says))
		fail_msg("%s=%s: state %d (wanted %d): %s", name, value, got, want, why);
}

static void test_values(void **state)
{
	(void)state;
	expect(CT_SETTING_FINE, "NCCL_DEBUG", "info", "");
	expect(CT_SETTING_FINE, "NCCL_DEBUG", "", "");
	expect(CT_SETTING_WRONG, "NCCL_DEBUG", "warning", "did you mean WARN?");
	expect(CT_SETTING_WRONG, "NCCL_DEBUG", "2", "NCCL knows NONE, VERSION, WARN, INFO");
	expect(CT_SETTING_FINE, "NCCL_SOCKET_FAMILY", "AF_INET6", "");
	expect(CT_SETTING_WRONG, "NCCL_SOCKET_FAMILY", "af_inet", "did you mean AF_INET?");
	expect(CT_SETTING_FINE, "NCCL_IB_TIMEOUT", "0x14", "");
	expect(CT_SETTING_FINE, "NCCL_IB_GID_INDEX", "-1 ", "");
	expect(CT_SETTING_WRONG, "NCCL_IB_DISABLE", "true", "NCCL would use 0); write NCCL_IB_DISABLE=1");
	expect(CT_SETTING_WRONG, "NCCL_P2P_DISABLE", "off", "write NCCL_P2P_DISABLE=0");
	expect(CT_SETTING_WRONG, "NCCL_BUFFSIZE", "4M", "NCCL would use 4); write an integer");
	expect(CT_SETTING_FINE, "NCCL_P2P_LEVEL", "NVL", "");
	expect(CT_SETTING_FINE, "NCCL_P2P_LEVEL", "3", "");
	expect(CT_SETTING_WRONG, "NCCL_NET_GDR_LEVEL", "PHP", "did you mean PHB?");
	expect(CT_SETTING_FINE, "NCCL_DEBUG_SUBSYS", "^init,COLL", "");
	expect(CT_SETTING_WRONG, "NCCL_DEBUG_SUBSYS", "INIT,COLLS,NET", "does not know \"COLLS\"; did you mean COLL?");
	expect(CT_SETTING_FINE, "NCCL_ALGO", "tree;allreduce:^NVLS,ring", "");
	expect(CT_SETTING_WRONG, "NCCL_PROTO", "ll;allreduce:LL256",
	       "does not know \"LL256\"; NCCL knows LL, LL128, Simple");
	expect(CT_SETTING_WRONG, "NCCL_TOPO_FILE", "/no/topo.xml", "cannot be read: No such file");
	expect(CT_SETTING_DOUBTFUL, "NCCL_DEBUG_FILE", "/tmp/nccl.log", "each rank of a host overwrites");
	expect(CT_SETTING_FINE, "NCCL_DEBUG_FILE", "/tmp/nccl.%p", "");
	expect(CT_SETTING_DOUBTFUL, "NCCL_IB_HCA", "=nosuch:1", "selects no InfiniBand device of this host");
	expect(CT_SETTING_FINE, "NCCL_NET_PLUGIN", "anything", "");
	expect(CT_SETTING_WRONG, "NCCL_IB_RESILIENCY_PORT_RECOVERY", "yes", "write NCCL_IB_RESILIENCY_PORT_RECOVERY=1");
	expect(CT_SETTING_FINE, "NCCL_SET_THREAD_NAME", "true", "");
	expect(CT_SETTING_WRONG, "NCCL_SET_THREAD_NAME", "yes", "NCCL knows 0, 1, F, T, FALSE, TRUE");
	expect(CT_SETTING_FINE, "NCCL_NET_MERGE_LEVEL", "PORT", "");
	expect(CT_SETTING_WRONG, "NCCL_NET_MERGE_LEVEL", "NVL", "NCCL knows LOC, PORT, PIX");
	expect(CT_SETTING_WRONG, "NCCL_NET_MERGE_POLICY", "rails", "did you mean RAIL?");
}

static void test_names(void **state)
{
	(void)state;
	expect(CT_SETTING_DOUBTFUL, "NCCL_SOCKET_IFNAMES", "lo", "did you mean NCCL_SOCKET_IFNAME?");
	expect(CT_SETTING_DOUBTFUL, "NCCL_IB_DISABLED", "1", "did you mean NCCL_IB_DISABLE?");
	expect(CT_SETTING_DOUBTFUL, "NCCL_SOKCET_IFNAME", "lo", "did you mean NCCL_SOCKET_IFNAME?");
	expect(CT_SETTING_DOUBTFUL, "NCCL_BLOCKING_WAIT", "1", "PyTorch reads");
	/* NCCL 2.28 reads it. */
	expect(CT_SETTING_FINE, "NCCL_GIN_NCONTEXTS", "many", "");
}

static void test_interfaces(void **state)
{
	(void)state;
	expect(CT_SETTING_FINE, "NCCL_SOCKET_IFNAME", "lo", "");
	expect(CT_SETTING_FINE, "NCCL_SOCKET_IFNAME", "=lo", "");
	expect(CT_SETTING_WRONG, "NCCL_SOCKET_IFNAME", "nosuch0", "selects no network interface of this host (it has ");
	expect(CT_SETTING_WRONG, "NCCL_SOCKET_IFNAME", "loo", "did you mean lo?");
	expect(CT_SETTING_DOUBTFUL, "NCCL_SOCKET_IFNAME", "nosuch0,lo", "this host has no network interface nosuch0");
	expect(CT_SETTING_FINE, "NCCL_SOCKET_IFNAME", "^docker", "");
	expect(CT_SETTING_FINE, "GLOO_SOCKET_IFNAME", "lo", "");
	expect(CT_SETTING_DOUBTFUL, "GLOO_SOCKET_IFNAME", "lo,eth0", "only the first interface");
	expect(CT_SETTING_WRONG, "GLOO_SOCKET_IFNAME", "nosuch0",
	       "no network interface \"nosuch0\"; its usable interfaces are ");
	/* All problems are in one message. */
	struct ct_settings s;
	setenv("NCCL_SOCKET_IFNAME", "nosuch0", 1);
	setenv("NCCL_IB_DISABLE", "yes", 1);
	assert_int_equal(ct_settings_read("NCCL_", &s), CT_OK);
	assert_int_equal(ct_settings_check(&s), CT_CONFIG);
	assert_non_null(strstr(ct_error_message(), "NCCL_IB_DISABLE=yes"));
	assert_non_null(strstr(ct_error_message(), "NCCL_SOCKET_IFNAME=nosuch0"));
	assert_non_null(strstr(ct_error_hint_text(), "NCCL_IB_DISABLE=1"));
	ct_error_clear();
	ct_settings_release(&s);
	unsetenv("NCCL_SOCKET_IFNAME");
	unsetenv("NCCL_IB_DISABLE");
}

/* Whether libnccl finds an interface. It needs no GPU for this. */
static bool nccl_finds(const char *value, const char *family)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		char id[128];
		void *library = dlopen("libnccl.so.2", RTLD_NOW);
		int (*get_unique_id)(void *) = NULL;

		setenv("NCCL_SOCKET_IFNAME", value, 1);
		if (family)
			setenv("NCCL_SOCKET_FAMILY", family, 1);
		*(void **)&get_unique_id = library ? dlsym(library, "ncclGetUniqueId") : NULL;
		_exit(get_unique_id ? get_unique_id(id) != 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status) == 0;
}

static void test_T8_interfaces_of_nccl(void **state)
{
	static const char *const patterns[] = {"lo",  "l",  "=l",       "=lo",     "^lo",        "^=lo",        "^",
					       "=",   ",",  "lo,",      "nosuch0", "nosuch0,lo", "=nosuch0,lo", "lo:1",
					       " lo", "LO", "^nosuch0", "^^lo",    "==lo",       "=^lo"};
	static const char *const families[] = {NULL, "AF_INET", "AF_INET6"};
	struct ct_iface *list;
	char all[512] = "^", why[640];
	size_t n;

	(void)state;
	if (!dlopen("libnccl.so.2", RTLD_NOW)) {
		print_message("libnccl.so.2 is not installed: its choice of interfaces is not compared\n");
		skip();
	}
	assert_int_equal(ct_net_ifaces(&list, &n), CT_OK);
	for (size_t i = 0; i < n; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? "," : "", list[i].name);
	ct_free(list);
	for (size_t f = 0; f < CT_ARRAY_LEN(families); f++) {
		for (size_t i = 0; i <= CT_ARRAY_LEN(patterns); i++) {
			const char *p = i < CT_ARRAY_LEN(patterns) ? patterns[i] : all;

			if (families[f])
				setenv("NCCL_SOCKET_FAMILY", families[f], 1);
			const bool ours = state_of("NCCL_SOCKET_IFNAME", p, why, sizeof(why)) != CT_SETTING_WRONG;
			unsetenv("NCCL_SOCKET_FAMILY");
			/* Without a name, NCCL looks for any interface. A host may have none. */
			if (strlen(p) > 1 && ours != nccl_finds(p, families[f]))
				fail_msg("NCCL_SOCKET_IFNAME=%s %s: %s", p, families[f] ? families[f] : "", why);
		}
	}
}

static void test_common(void **state)
{
	struct ct_str lines = {0}, out = {0};

	(void)state;
	setenv("NCCL_ALGO", "Ring", 1);
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	assert_int_equal(ct_settings_common(&lines), CT_OK);
	assert_string_equal(ct_str_text(&lines), "NCCL_ALGO=Ring\n");
	ct_str_release(&lines);
	unsetenv("NCCL_ALGO");
	unsetenv("NCCL_DEBUG");
	unsetenv("NCCL_SOCKET_IFNAME");

	const char *const same[] = {"A=1\nB=2\n", "A=1\nB=2\n", "A=1\nB=2\n"};
	ct_settings_compare(same, 3, &out);
	assert_string_equal(ct_str_text(&out), "");
	const char *const other[] = {"A=1\nB=2\n", "A=1\nB=2\n", "A=12\nC=3\n", "B=2\nC=3\n"};
	ct_settings_compare(other, 4, &out);
	assert_string_equal(ct_str_text(&out),
			    "A is \"1\" on rank 0, but \"12\" on rank 2; 1 other rank also differs from rank 0\n"
			    "B is \"2\" on rank 0, but not set on rank 2\n"
			    "C is not set on rank 0, but \"3\" on rank 2; 1 other rank also differs from rank 0\n");
	ct_str_release(&out);
}

/* What a library writes to NCCL_DEBUG_FILE is in the log file, whatever the level of the log. */
static void test_log(void **state)
{
	char path[] = "/tmp/ctrain_nccl_log.XXXXXX", *text;
	char name[64];
	ct_nccl_log *l;
	size_t len;
	FILE *f;

	(void)state;
	close(mkstemp(path));
	assert_int_equal(ct_nccl_log_open(&l), CT_OK);
	assert_null(l); /* NCCL_DEBUG is not set */
	setenv("NCCL_DEBUG", "info", 1);
	setenv("NCCL_DEBUG_FILE", "/tmp/mine.%p", 1);
	assert_int_equal(ct_nccl_log_open(&l), CT_OK);
	assert_null(l);
	assert_string_equal(getenv("NCCL_DEBUG_FILE"), "/tmp/mine.%p");
	unsetenv("NCCL_DEBUG_FILE");
	assert_int_equal(ct_log_configure("error"), CT_OK);
	assert_int_equal(ct_log_open_file(path), CT_OK);
	assert_int_equal(ct_nccl_log_open(&l), CT_OK);
	snprintf(name, sizeof(name), "%s", getenv("NCCL_DEBUG_FILE"));
	expect(CT_SETTING_FINE, "NCCL_DEBUG_FILE", name, "");
	assert_int_equal(ct_nccl_log_start(l), CT_OK);
	/* It does not set the variable, because other threads may be reading the environment. */
	assert_null(getenv("NCCL_DEBUG_FILE"));
	setenv("NCCL_DEBUG_FILE", name, 1);
	assert_non_null(f = fopen(name, "w"));
	for (int i = 0; i < 3000; i++) /* more than the pipe can hold */
		fprintf(f, "host:1:2 [0] NCCL INFO message %d\n", i);
	fprintf(f, "\nhost:1:2 [0] init.cc:3 NCCL WARN trouble\nno end of line");
	fflush(f);
	ct_nccl_log_close(l);
	assert_null(getenv("NCCL_DEBUG_FILE"));
	for (int i = 0; i < 3000; i++) /* NCCL's threads do not wait */
		fprintf(f, "host:1:2 [0] NCCL INFO later %d\n", i);
	assert_int_equal(fclose(f), 0);
	ct_log_close();
	assert_int_equal(ct_file_read(path, 1 << 24, &text, &len), CT_OK);
	assert_non_null(strstr(text, "info nccl: host:1:2 [0] NCCL INFO message 0\n"));
	assert_non_null(strstr(text, "info nccl: host:1:2 [0] NCCL INFO message 2999\n"));
	assert_non_null(strstr(text, "warn nccl: host:1:2 [0] init.cc:3 NCCL WARN trouble\n"));
	assert_non_null(strstr(text, "info nccl: no end of line\n"));
	assert_null(strstr(text, "nccl: \n"));
	assert_null(strstr(text, "later"));
	ct_free(text);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),     cmocka_unit_test(test_names),
		cmocka_unit_test(test_interfaces), cmocka_unit_test(test_T8_interfaces_of_nccl),
		cmocka_unit_test(test_common),     cmocka_unit_test(test_log),
	};

	clearenv();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
