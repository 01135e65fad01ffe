/* The pause of a loop that asks again and again whether something has happened in another thread or process. Tests must
 * not sleep for anything else (scripts/check_style.sh): a time that is long enough on one machine is too short on
 * another one, or under load. A loop that waits forever ends with the time limit of its test. */
#ifndef CT_TESTS_PAUSE_H
#define CT_TESTS_PAUSE_H

#include <time.h>

static inline void pause_briefly(void)
{
	(void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

#endif
