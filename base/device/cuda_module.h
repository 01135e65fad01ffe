/* The module with the CUDA back ends, libctrain_cuda.so. The program does not depend on CUDA: the module and the
 * libraries that it needs are loaded only when a CUDA device is requested. */
#ifndef CT_BASE_DEVICE_CUDA_MODULE_H
#define CT_BASE_DEVICE_CUDA_MODULE_H

#include "base/mem.h"
#include "base/process/module.h"

/* Loads the libraries libcudart.so.13 and libcudnn.so.9 and then the module, and looks up the table `symbol` in the
 * module. The libraries and the module are searched for in the directories that the environment variable
 * CTRAIN_CUDA_LIBS lists ("DIR:DIR"). The libraries are then searched for where CMake found them, in CUDA_HOME,
 * CUDA_PATH and /usr/local/cuda, in the search path of the dynamic linker, and finally in the packages of pip
 * (ct_cuda_wheel_path). If the result is CT_UNSUPPORTED, the message states what is missing. */
enum ct_status ct_cuda_module_open(const char *symbol, const void **out) CT_MUST_CHECK;

/* Loads a library that only a part of the module needs, such as libnccl.so.2, from the same places. */
enum ct_status ct_cuda_library_open(const char *name) CT_MUST_CHECK;

/* Returns whether this machine has an NVIDIA driver, or CTRAIN_CUDA_LIBS names a substitute for it. Takes microseconds,
 * because it looks only for the files of the driver. */
bool ct_cuda_has_driver(void);

/* Appends the directories with the libraries of NVIDIA's packages of pip: nvidia/NAME/lib in the active environment of
 * virtualenv or conda, in ~/.local and in /usr/local. */
enum ct_status ct_cuda_wheel_path(struct ct_str *path) CT_MUST_CHECK;

/* Describes the module, libcudart, libcudnn, the driver and libnccl, and returns CT_CUDA_N_PARTS. Returns 0 if the
 * module cannot be loaded. If libnccl cannot be used, its version is the reason. */
enum { CT_CUDA_N_PARTS = 5 };
struct ct_cuda_part {
	char name[24], version[160];
	char path[512]; /* absolute; "" if unknown */
};
int ct_cuda_parts(struct ct_cuda_part parts[CT_CUDA_N_PARTS]);

#endif
