/* A module is searched for in places that are relative to the program, not in the path of the dynamic linker: both must
 * come from the same build, which is checked before any other member of the module's table is used. All signals are
 * blocked while a module is loaded, because its libraries may start threads, which inherit the mask. Modules and
 * libraries stay loaded (RTLD_NODELETE). Libraries are global, so that modules that are opened later find their
 * symbols. */
#include "base/process/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process/program.h"

/* Relative to the program. CMake defines where modules are installed, for example "../lib/ctrain". */
static const char *const places[] = {"", CT_MODULE_PLACE, "../.."};

/* Returns the path of `name` in the directory, owned, or NULL if it is not there. Takes `directory`, which may be NULL.
 */
static char *existing(char *directory, const char *name)
{
	char *path = directory ? ct_path_join(directory, name) : NULL;

	ct_free(directory);
	if (path && ct_file_exists(path))
		return path;
	ct_free(path);
	return NULL;
}

/* The path of `name` in the first directory of `path` that has it, owned; NULL: in none of them. */
static char *find_in(const char *path, const char *name)
{
	char *found = NULL;

	while (path && *path && !found) {
		const size_t n = strcspn(path, ":");

		if (n > 0)
			found = existing(ct_strndup(path, n), name);
		path += n + (path[n] == ':');
	}
	return found;
}

static enum ct_status find(const char *first, const char *name, char **path)
{
	char *own = ct_program_dir();

	*path = find_in(first, name);
	for (size_t i = 0; own && i < CT_ARRAY_LEN(places) && !*path; i++)
		*path = existing(places[i][0] ? ct_path_join(own, places[i]) : ct_strdup(own), name);
	if (!*path) {
		CT_FAIL(CT_UNSUPPORTED, "cannot find %s in %s (the directory of the program) or in " CT_MODULE_PLACE,
			name, own ? own : "an unknown directory (/proc/self/exe cannot be read)");
		ct_error_hint(
			"ctrain and this module are built and installed together: do not move one without the other");
	}
	ct_free(own);
	return *path ? CT_OK : CT_UNSUPPORTED;
}

static enum ct_status check_head(const char *name, const struct ct_module_head *head)
{
	if (head->abi != CT_MODULE_ABI)
		CT_FAIL(CT_UNSUPPORTED, "%s has module interface %u, but this program has %d", name,
			(unsigned)head->abi, CT_MODULE_ABI);
	else if (strncmp(head->build, CT_BUILD_ID, sizeof(head->build)) != 0)
		CT_FAIL(CT_UNSUPPORTED, "%s is from build %.*s, but this program is from build %s", name,
			(int)sizeof(head->build) - 1, head->build, CT_BUILD_ID);
	else
		return CT_OK;
	ct_error_hint("build and install the program together with its modules");
	return CT_UNSUPPORTED;
}

enum ct_status ct_module_open_in(const char *first, const char *name, const char *symbol, const void **out)
{
	sigset_t all, old;
	char *path;
	void *module;

	*out = NULL;
	CT_TRY(find(first, name, &path));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	ct_free(path);
	if (!module)
		return CT_FAIL(CT_UNSUPPORTED, "cannot load %s: %s", name, dlerror());
	*out = dlsym(module, symbol);
	if (!*out)
		return CT_FAIL(CT_UNSUPPORTED, "%s is not a module of this program: %s", name, dlerror());
	enum ct_status st = check_head(name, *out);
	if (st < 0)
		*out = NULL;
	return st;
}

enum ct_status ct_module_open(const char *name, const char *symbol, const void **out)
{
	return ct_module_open_in(NULL, name, symbol, out);
}

enum ct_status ct_library_open(const char *path, const char *name, const char *last)
{
	char *found = find_in(path, name);
	void *library = dlopen(found ? found : name, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
	enum ct_status st = library ? CT_OK : CT_FAIL(CT_UNSUPPORTED, "%s", dlerror());

	if (st < 0 && !found && (found = find_in(last, name)) != NULL) {
		library = dlopen(found, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
		st = library ? CT_OK : CT_FAIL(CT_UNSUPPORTED, "%s", dlerror());
		if (st == CT_OK)
			ct_error_clear();
	}
	ct_free(found);
	return st;
}

void *ct_library_symbol(const char *name, const char *symbol)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD), *address = library ? dlsym(library, symbol) : NULL;

	if (library)
		dlclose(library);
	return address;
}

void ct_library_path(const void *address, char *path, size_t len)
{
	char absolute[PATH_MAX];
	Dl_info info;

	snprintf(path, len, "%s", "");
	if (address && dladdr(address, &info) && info.dli_fname && realpath(info.dli_fname, absolute))
		snprintf(path, len, "%s", absolute);
}
