/* Modules: shared objects of ctrain that are loaded on demand, because the libraries that they depend on are large. For
 * example, one module depends on all of MPI, which starts a thread and takes a tenth of a second to load. The program
 * exports its functions so that modules can call them. */
#ifndef CT_BASE_PROCESS_MODULE_H
#define CT_BASE_PROCESS_MODULE_H

#include <stdint.h>

#include "base/status.h"

/* The first member of every table that a module exports. A module from another build is rejected, because its structs
 * may have a different layout. The build id covers the version and the headers that modules include. */
#define CT_MODULE_ABI 1
struct ct_module_head {
	uint32_t abi;   /* CT_MODULE_ABI: the layout of this struct */
	char build[80]; /* CT_BUILD_ID, which CMake defines for the files that need it */
};

/* Loads the module `name` ("ctrain_gloo.so") and looks up `symbol` in it. The module is searched for in the directory
 * of the program, in the one where modules are installed (../lib/ctrain relative to that directory, if CMake has not
 * been given another one), and in the directory two levels above it (for tests in the build tree). The module stays
 * loaded; opening it again is cheap. The symbol must denote a table whose first member is a struct ct_module_head,
 * which is checked. Threads that the module's libraries start have all signals blocked. May be called from any thread.
 * If the result is CT_UNSUPPORTED, the message lists the places that were searched, or states why the module cannot be
 * loaded (for example, because it is from another build). */
enum ct_status ct_module_open(const char *name, const char *symbol, const void **out) CT_MUST_CHECK;
/* Does the same, but first searches the directories that `path` lists ("DIR:DIR"; NULL: none). */
enum ct_status ct_module_open_in(const char *path, const char *name, const char *symbol,
				 const void **out) CT_MUST_CHECK;

/* Loads the library `name` ("libcudart.so.13"), so that the dynamic linker uses it for modules that depend on it. The
 * library is loaded from the first directory in `path` that contains it, else from the search path of the dynamic
 * linker, else from a directory in `last`. It stays loaded. On failure, returns CT_UNSUPPORTED with the reason that the
 * dynamic linker gives. */
enum ct_status ct_library_open(const char *path, const char *name, const char *last) CT_MUST_CHECK;
/* Returns the address of a symbol in a library that this process has loaded, or NULL. */
void *ct_library_symbol(const char *name, const char *symbol);
/* Writes the absolute path of the library or module that contains this address, or "". */
void ct_library_path(const void *address, char *path, size_t len);

#endif
