#include "trainer/job/launched.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/job/launch_env.h"

enum ct_status ct_launched_join_clock(void)
{
	int64_t fd = ct_env_i64(CT_ENV_CLOCK_FD, -1);
	enum ct_status st = CT_OK;

	if (getenv(CT_ENV_ERROR_FD) && fd >= 0 && fd <= INT_MAX) {
		st = ct_clock_join((int)fd);
		close((int)fd);
	}
	unsetenv(CT_ENV_CLOCK_FD);
	return st;
}

bool ct_launched_deliver_error(enum ct_status st)
{
	int fd = (int)ct_env_i64(CT_ENV_ERROR_FD, -1);
	struct ct_error e;

	if (fd < 0)
		return false;
	ct_error_save(&e);
	e.status = st;
	return write(fd, &e, sizeof(e)) == (ssize_t)sizeof(e);
}
