/* Modules: shared objects of ctrain that are opened on demand, because their libraries are heavy (one pulls in all of MPI,
 * which starts a thread and takes a tenth of a second to load). Modules call functions of the program, which exports
 * them. */
#ifndef CT_BASE_MODULE_H
#define CT_BASE_MODULE_H

#include "base/status.h"

/* Opens `name` ("ctrain_gloo.so") and finds `symbol` in it. Looks in the directory of the program, in ../lib/ctrain
 * relative to it, and two directories up (for tests in the build tree). The module stays loaded; opening it again is
 * cheap. Threads that its libraries start have all signals blocked. Any thread may call. CT_UNSUPPORTED says where the
 * module was expected, or why it cannot be loaded. */
enum ct_status ct_module_open(const char *name, const char *symbol, const void **out) CT_MUST_CHECK;

#endif
