/* The failpoint is set once, before the first call is counted, and then only the counter changes, so the check in
 * ordinary runs is one relaxed load. The thread that decrements the counter from 1 sends the signal; the counter then
 * stays at or below 0 and never returns to 1. ct_failpoint_arm also reads the environment first, so that a later first
 * call of ct_failpoint does not replace what it has set. */
#include "base/failpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Set before the first call is counted; afterwards only `left` changes. */
static struct {
	pthread_once_t once;
	_Atomic long long left; /* calls until the signal is sent; 0: inactive */
	char name[32];
	int signal;
} point = {.once = PTHREAD_ONCE_INIT};

static bool parse_number(const char *text, int64_t *out)
{
	if (ct_parse_i64(text, out) == CT_OK)
		return true;
	ct_error_clear();
	return false;
}

static bool is_our_rank(const char *text)
{
	static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
	const char *env = NULL;
	int64_t wanted, rank = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(names) && !env; i++)
		env = getenv(names[i]);
	return parse_number(text, &wanted) && (!env || parse_number(env, &rank)) && rank == wanted;
}

static void arm(const char *spec)
{
	int64_t n = 1;
	char text[64], *rest;
	int sig = SIGKILL;

	atomic_store(&point.left, 0);
	if (!spec || strlen(spec) >= sizeof(text))
		return;
	snprintf(text, sizeof(text), "%s", spec);
	rest = strchr(text, '=');
	if (rest) {
		*rest = '\0';
		if (strcmp(rest + 1, "stop") != 0)
			return;
		sig = SIGSTOP;
	}
	rest = strchr(text, '@');
	if (rest) {
		*rest = '\0';
		if (!is_our_rank(rest + 1))
			return;
	}
	rest = strchr(text, ':');
	if (rest) {
		*rest = '\0';
		if (!parse_number(rest + 1, &n) || n < 1)
			return;
	}
	if (text[0] == '\0' || strlen(text) >= sizeof(point.name))
		return;
	memcpy(point.name, text, strlen(text) + 1);
	point.signal = sig;
	atomic_store(&point.left, n);
}

static void arm_from_environment(void)
{
	arm(getenv("CTRAIN_FAILPOINT"));
}

void ct_failpoint_arm(const char *spec)
{
	pthread_once(&point.once, arm_from_environment);
	arm(spec);
}

void ct_failpoint(const char *name)
{
	pthread_once(&point.once, arm_from_environment);
	if (atomic_load_explicit(&point.left, memory_order_relaxed) == 0 || strcmp(name, point.name) != 0)
		return;
	if (atomic_fetch_sub(&point.left, 1) == 1)
		(void)raise(point.signal);
}
