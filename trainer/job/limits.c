#define CT_LOG_COMPONENT "launch"
#include "trainer/job/limits.h"

#include <sys/resource.h>

#include "base/log.h"
#include "base/mem.h"

#define WANTED 1024
#define PER_PROCESS 32
#define PER_RANK 4

int ct_limits_open_files(int n_ranks)
{
	return PER_PROCESS + PER_RANK * (n_ranks > 0 ? n_ranks : 1);
}

enum ct_status ct_limits_check(int n_ranks)
{
	struct rlimit files;
	rlim_t need = (rlim_t)ct_limits_open_files(n_ranks);

	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return CT_OK;
	if (files.rlim_cur < WANTED && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max < WANTED ? files.rlim_max : WANTED;
		if (setrlimit(RLIMIT_NOFILE, &files) != 0 || getrlimit(RLIMIT_NOFILE, &files) != 0)
			CT_DEBUG("cannot raise the limit of open files");
	}
	if (files.rlim_cur >= need)
		return CT_OK;
	CT_FAIL(CT_NOMEM,
		"the limit of open files in this shell is %llu, but a run with %d rank%s on a host needs %llu",
		(unsigned long long)files.rlim_cur, n_ranks, ct_plural(n_ranks), (unsigned long long)need);
	return ct_error_hint("raise the limit: ulimit -n %d", WANTED);
}
