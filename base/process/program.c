#include "base/process/program.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

/* Relative to the program: installed (CMake defines where, for example "../share/ctrain"), or in build/, build/PRESET
 * or (tests) build/PRESET/tests/NAME of a source tree. */
static const char *const places[] = {CT_SHARE_PLACE, "..", "../..", "../../../.."};

char *ct_program_dir(void)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return NULL;
	exe[n] = '\0';
	return ct_path_dir(exe);
}

char *ct_program_file(const char *name)
{
	char *own = ct_program_dir(), *found = NULL, real[PATH_MAX];

	for (size_t i = 0; own && !found && i < CT_ARRAY_LEN(places); i++) {
		char *directory = ct_path_join(own, places[i]);
		char *candidate = directory ? ct_path_join(directory, name) : NULL;

		if (candidate && realpath(candidate, real))
			found = ct_strdup(real);
		ct_free(candidate);
		ct_free(directory);
	}
	ct_free(own);
	return found;
}
