/* For LD_PRELOAD: opens images as slowly as a bad disk or network, so that a rank waits for its data however fast the
 * machine is. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum { DELAY_MS = 8 };

int openat(int dir, const char *path, int flags, ...)
{
	int (*next)(int, const char *, int, ...) = NULL;
	const char *suffix = strrchr(path, '.');
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & (O_CREAT | O_TMPFILE))
		mode = va_arg(args, mode_t);
	va_end(args);
	if (suffix && strcmp(suffix, ".png") == 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = DELAY_MS * 1000000}, NULL);
	*(void **)&next = dlsym(RTLD_NEXT, "openat");
	return next(dir, path, flags, mode);
}
