#include "trainer/job/launched.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/process/rank_page.h"
#include "trainer/job/launch_env.h"

enum ct_status ct_launched_join(void)
{
	const int64_t fd = ct_env_i64(CT_ENV_PAGES_FD, -1);

	if (fd < 0 || fd > INT_MAX)
		return CT_OK;
	CT_TRY(ct_rank_page_join((int)fd, ct_env_i64("LOCAL_RANK", -1), ct_env_i64("LOCAL_WORLD_SIZE", -1)));
	close((int)fd);
	unsetenv(CT_ENV_PAGES_FD);
	return CT_OK;
}

bool ct_launched_deliver_error(enum ct_status st)
{
	return ct_rank_page_is_shared() && ct_rank_page_fail(ct_rank_page_own(), st);
}
