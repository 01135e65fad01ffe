/* The module with the CUDA back ends, libctrain_cuda.so. The program does not depend on CUDA: the module is opened when a CUDA device is
 * asked for, after the libraries that it needs. */
#ifndef CT_BASE_DEVICE_CUDA_MODULE_H
#define CT_BASE_DEVICE_CUDA_MODULE_H

#include "base/module.h"

/* Looks up a table of the module. Searches for the module and for libcudart.so.13 and libcudnn.so.9 in the directories of the
 * environment variable CTRAIN_CUDA_LIBS ("DIR:DIR"), for the libraries also in CUDA_HOME, CUDA_PATH and /usr/local/cuda, and at last
 * where the dynamic linker looks. If the result is CT_UNSUPPORTED, the message says what is missing. */
enum ct_status ct_cuda_module_open(const char *symbol, const void **out) CT_MUST_CHECK;

#endif
