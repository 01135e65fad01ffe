/* Parts of ctrain that bring heavy libraries along (one pulls in all of MPI, with threads of its own and a tenth of a
 * second to load): shared objects that are opened when somebody asks for what they do. They call back into the program,
 * which exports its functions. */
#ifndef CT_BASE_MODULE_H
#define CT_BASE_MODULE_H

#include "base/status.h"

/* Opens `name` ("ctrain_gloo.so") and finds `symbol` in it. Looks in the folder of the program, in ../lib/ctrain beside
 * it, and two folders up (tests in the build tree). The module stays for the life of the process; opening it again is
 * cheap. Threads that its libraries start never see a signal. Any thread. CT_UNSUPPORTED says where it was looked for,
 * or what the loader said. */
enum ct_status ct_module_open(const char *name, const char *symbol, const void **out) CT_MUST_CHECK;

#endif
