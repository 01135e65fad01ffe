/* Modules: shared objects of ctrain that are loaded on demand, because the libraries they depend on are large. For
 * example, one depends on all of MPI, which starts a thread and takes a tenth of a second to load. The program exports
 * its functions so that modules can call them. */
#ifndef CT_BASE_MODULE_H
#define CT_BASE_MODULE_H

#include <stdint.h>

#include "base/status.h"

/* The first member of every table that a module exports. A module from another build is refused, because its structs
 * may have another layout. The build id covers the version and the headers that modules include. */
#define CT_MODULE_ABI 1
struct ct_module_head {
	uint32_t abi;   /* CT_MODULE_ABI: the layout of this struct */
	char build[80]; /* CT_BUILD_ID, which CMake defines for the files that need it */
};

/* Loads the module `name` ("ctrain_gloo.so") and looks up `symbol` in it. Searches the directory of the program,
 * ../lib/ctrain relative to it, and the directory two levels above it (for tests in the build tree). The module stays
 * loaded; opening it again is cheap. The symbol must be a table whose first member is a struct ct_module_head, which is
 * checked. Threads that the module's libraries start have all signals blocked. May be called from any thread. If the
 * result is CT_UNSUPPORTED, the message lists the places that were searched, or the reason why the module cannot be
 * loaded (for example, that it is from another build). */
enum ct_status ct_module_open(const char *name, const char *symbol, const void **out) CT_MUST_CHECK;
/* The same, but searches the directories of `path` first ("DIR:DIR"; NULL: none). */
enum ct_status ct_module_open_in(const char *path, const char *name, const char *symbol, const void **out) CT_MUST_CHECK;

/* Loads a library that modules depend on, so that the dynamic linker uses it for them: `name` ("libcudart.so.13") in
 * the first directory of `path` that has it, else wherever the dynamic linker finds it. The library stays loaded.
 * Returns CT_UNSUPPORTED with the reason of the dynamic linker. */
enum ct_status ct_library_open(const char *path, const char *name) CT_MUST_CHECK;

#endif
