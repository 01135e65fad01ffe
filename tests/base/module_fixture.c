/* The shared object of test_module.c: calls a function of the program that opened it. */
#include "base/status.h"

enum ct_status (*const ct_fixture_fail)(enum ct_status, const char *, int, const char *, ...);
enum ct_status (*const ct_fixture_fail)(enum ct_status, const char *, int, const char *, ...) = ct_error_set;
