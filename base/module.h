/* Modules: shared objects of ctrain that are opened on demand, because their libraries are heavy (one pulls in all of
 * MPI, which starts a thread and takes a tenth of a second to load). Modules call functions of the program, which
 * exports them. */
#ifndef CT_BASE_MODULE_H
#define CT_BASE_MODULE_H

#include <stdint.h>

#include "base/status.h"

/* The first member of every table that a module exports. A module of another build would be called with other structs
 * than it was compiled for: it is refused. The build id covers the version and the headers that modules see. */
#define CT_MODULE_ABI 1
struct ct_module_head {
	uint32_t abi;   /* CT_MODULE_ABI: the layout of this struct */
	char build[80]; /* CT_BUILD_ID, which CMake defines for the files that need it */
};

/* Opens `name` ("ctrain_gloo.so") and finds `symbol` in it. Looks in the directory of the program, in ../lib/ctrain
 * relative to it, and two directories up (for tests in the build tree). The module stays loaded; opening it again is
 * cheap. The symbol is a table whose first member is a struct ct_module_head, which is checked. Threads that its
 * libraries start have all signals blocked. Any thread may call. The message of CT_UNSUPPORTED has the places where the
 * module was expected, or the reason why it cannot be loaded (for example, that it is of another build). */
enum ct_status ct_module_open(const char *name, const char *symbol, const void **out) CT_MUST_CHECK;

#endif
