#include "base/device/cuda_module.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"

static const char *const libraries[] = {"libcudart.so.13", "libcudnn.so.9"};

bool ct_cuda_has_driver(void)
{
	/* The second one is the driver of the Windows Subsystem for Linux. */
	static const char *const files[] = {"/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version"};
	const char *own = getenv("CTRAIN_CUDA_LIBS");

	for (size_t i = 0; i < CT_ARRAY_LEN(files); i++) {
		if (ct_file_exists(files[i]))
			return true;
	}
	return own && *own;
}

static void add_toolkit(struct ct_str *path, const char *directory)
{
	if (directory && *directory)
		ct_str_addf(path, ":%s/lib64:%s/lib", directory, directory);
}

static enum ct_status open_libraries(const char *path)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(libraries); i++) {
		if (ct_library_open(path, libraries[i]) < 0) {
			ct_error_hint(
				"install CUDA 13 and cuDNN 9, or set CTRAIN_CUDA_LIBS to the directories of %s and %s",
				libraries[0], libraries[1]);
			return CT_UNSUPPORTED;
		}
	}
	return CT_OK;
}

enum ct_status ct_cuda_module_open(const char *symbol, const void **out)
{
	const char *own = getenv("CTRAIN_CUDA_LIBS");
	struct ct_str path = {0};
	enum ct_status st;

	ct_str_addf(&path, "%s:%s", own ? own : "", CT_CUDA_LIBRARY_PATH);
	add_toolkit(&path, getenv("CUDA_HOME"));
	add_toolkit(&path, getenv("CUDA_PATH"));
	add_toolkit(&path, "/usr/local/cuda");
	st = ct_str_status(&path);
	if (st == CT_OK)
		st = open_libraries(ct_str_text(&path));
	if (st == CT_OK)
		st = ct_module_open_in(own, "libctrain_cuda.so", symbol, out);
	ct_str_release(&path);
	return st;
}
