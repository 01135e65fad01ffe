/* Faults and choices that environment variables request. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"
#include "tests/soft_gpu/nccl/soft_nccl.h"

enum { MAX_FAULTS = 32 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int n_faults;
static struct {
	enum soft__fault fault;
	int rank, n, error;
} faults[MAX_FAULTS];
static bool mismatch_hangs, lost_is_error;

static const char *const names[SOFT__N_FAULTS] = {"init", "stuck", "error", "wrong", "early"};

/* NAME@RANK[:N[:ERROR]], separated by commas. */
static void parse(const char *spec)
{
	n_faults = 0;
	while (spec && *spec) {
		size_t length = strcspn(spec, ","), name = strcspn(spec, "@");
		int end = 0, i = n_faults, f = 0;

		while (f < SOFT__N_FAULTS && (strlen(names[f]) != name || strncmp(names[f], spec, name) != 0))
			f++;
		faults[i].n = faults[i].error = 0;
		if (i == MAX_FAULTS - 1 || f == SOFT__N_FAULTS ||
		    sscanf(spec + name, "@%d%n", &faults[i].rank, &end) != 1)
			soft_gpu_fail("SOFT_NCCL_FAULT: cannot read \"%s\"", spec);
		(void)sscanf(spec + name + end, ":%d:%d", &faults[i].n, &faults[i].error);
		faults[i].fault = (enum soft__fault)f;
		n_faults++;
		spec += length + (spec[length] == ',');
	}
}

static bool is_set_to(const char *variable, const char *value, const char *other)
{
	const char *v = getenv(variable);

	if (!v || !*v || strcmp(v, other) == 0)
		return false;
	if (strcmp(v, value) != 0)
		soft_gpu_fail("%s: \"%s\" is neither %s nor %s", variable, v, value, other);
	return true;
}

static void start(void)
{
	parse(getenv("SOFT_NCCL_FAULT"));
	mismatch_hangs = is_set_to("SOFT_NCCL_MISMATCH", "hang", "error");
	lost_is_error = is_set_to("SOFT_NCCL_LOST", "error", "hang");
}

void soft_nccl_set_faults(const char *spec)
{
	pthread_once(&once, start);
	parse(spec);
}

bool soft__fault_of(enum soft__fault f, int rank, int *n, int *error)
{
	pthread_once(&once, start);
	for (int i = 0; i < n_faults; i++) {
		if (faults[i].fault != f || faults[i].rank != rank)
			continue;
		*n = faults[i].n;
		*error = faults[i].error;
		return true;
	}
	return false;
}

bool soft__mismatch_hangs(void)
{
	pthread_once(&once, start);
	return mismatch_hangs;
}

bool soft__lost_is_error(void)
{
	pthread_once(&once, start);
	return lost_is_error;
}
