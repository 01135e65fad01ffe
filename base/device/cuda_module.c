/* Finds the CUDA libraries of this machine without depending on them. They are opened before the module, from the first
 * place that has them, so that the dynamic linker uses these copies for the module. What the user names comes first,
 * what CMake found comes next, and the packages of pip come last. If no driver is installed, this is reported instead
 * of the library that is missing. Versions are read through functions that are looked up by name, so no header of CUDA
 * is needed. */
#include "base/device/cuda_module.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Appends the directories "nvidia/NAME/lib" below the directory in which pip installs packages. */
static void add_wheels(struct ct_str *path, const char *root, const char *packages)
{
	char *pattern = root && *root ? ct_strfmt("%s/lib/python3*/%s/nvidia/*/lib", root, packages) : NULL;
	glob_t found = {0};

	if (pattern && glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			ct_str_addf(path, "%s%s", path->len ? ":" : "", found.gl_pathv[i]);
	}
	globfree(&found);
	ct_free(pattern);
}

enum ct_status ct_cuda_wheel_path(struct ct_str *path)
{
	const char *home = getenv("HOME");
	char *user = home ? ct_path_join(home, ".local") : NULL;

	add_wheels(path, getenv("VIRTUAL_ENV"), "site-packages");
	add_wheels(path, getenv("CONDA_PREFIX"), "site-packages");
	add_wheels(path, user, "site-packages");
	add_wheels(path, "/usr/local", "*-packages");
	ct_free(user);
	return ct_str_status(path);
}

static enum ct_status open_libraries(const char *path)
{
	struct ct_str wheels = {0};
	enum ct_status st = ct_cuda_wheel_path(&wheels);

	for (size_t i = 0; st == CT_OK && i < CT_ARRAY_LEN(libraries); i++)
		st = ct_library_open(path, libraries[i], ct_str_text(&wheels));
	ct_str_release(&wheels);
	if (st == CT_OK)
		return CT_OK;
	if (!ct_cuda_has_driver())
		return CT_FAIL(CT_UNSUPPORTED, "no NVIDIA driver is installed");
	ct_error_hint("install CUDA 13 and cuDNN 9, or set CTRAIN_CUDA_LIBS to the directories of %s and %s",
		      libraries[0], libraries[1]);
	return st;
}

/* Appends the directories in which libraries are searched for first. */
static enum ct_status add_search_path(struct ct_str *path)
{
	const char *own = getenv("CTRAIN_CUDA_LIBS");

	ct_str_addf(path, "%s:%s", own ? own : "", CT_CUDA_LIBRARY_PATH);
	add_toolkit(path, getenv("CUDA_HOME"));
	add_toolkit(path, getenv("CUDA_PATH"));
	add_toolkit(path, "/usr/local/cuda");
	return ct_str_status(path);
}

enum ct_status ct_cuda_library_open(const char *name)
{
	struct ct_str path = {0}, wheels = {0};
	enum ct_status st = add_search_path(&path);

	if (st == CT_OK)
		st = ct_cuda_wheel_path(&wheels);
	if (st == CT_OK)
		st = ct_library_open(ct_str_text(&path), name, ct_str_text(&wheels));
	ct_str_release(&wheels);
	ct_str_release(&path);
	return st;
}

enum ct_status ct_cuda_module_open(const char *symbol, const void **out)
{
	const char *own = getenv("CTRAIN_CUDA_LIBS");
	struct ct_str path = {0};
	enum ct_status st = add_search_path(&path);

	if (st == CT_OK)
		st = open_libraries(ct_str_text(&path));
	if (st == CT_OK)
		st = ct_module_open_in(own, "libctrain_cuda.so", symbol, out);
	ct_str_release(&path);
	return st;
}

/* "580.65.06" from "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Release Build ...". */
static void driver_release(char *out, size_t len)
{
	char text[256] = "";
	FILE *f = fopen("/proc/driver/nvidia/version", "re");

	if (f) {
		if (!fgets(text, sizeof(text), f))
			text[0] = '\0';
		fclose(f);
	}
	snprintf(out, len, "%s", "");
	for (const char *word = text; *word; word += strspn(word, " ")) {
		const size_t n = strcspn(word, " ");

		if (strspn(word, "0123456789.") == n && memchr(word, '.', n)) {
			snprintf(out, len, "%.*s, ", (int)n, word);
			return;
		}
		word += n;
	}
}

/* Fills in a row. version: the result of the library's function, such as 13000 or 92602. */
static void set_part(struct ct_cuda_part *part, const char *name, const void *address, int version, bool is_cudnn)
{
	const int major = version / (is_cudnn ? 10000 : 1000);

	snprintf(part->name, sizeof(part->name), "%s", name);
	ct_library_path(address, part->path, sizeof(part->path));
	if (is_cudnn)
		snprintf(part->version, sizeof(part->version), "%d.%d.%d", major, version % 10000 / 100, version % 100);
	else
		snprintf(part->version, sizeof(part->version), "CUDA %d.%d", major, version % 1000 / 10);
}

/* Calls a function of libcudart that gets a version. */
static int cuda_version(const char *symbol, void **address)
{
	int (*get)(int *), version = 0;

	*address = ct_library_symbol(libraries[0], symbol);
	memcpy(&get, address, sizeof(get));
	return get && get(&version) == 0 ? version : 0;
}

static void set_nccl(struct ct_cuda_part *part)
{
	static const char name[] = "libnccl.so.2";
	int (*get)(int *), version = 0;
	void *address = NULL;

	snprintf(part->name, sizeof(part->name), "%s", name);
	const enum ct_status st = ct_cuda_library_open(name);
	if (st == CT_OK)
		address = ct_library_symbol(name, "ncclGetVersion");
	memcpy(&get, &address, sizeof(get));
	ct_library_path(address, part->path, sizeof(part->path));
	if (get && get(&version) == 0)
		snprintf(part->version, sizeof(part->version), "%d.%d.%d", version / 10000, version % 10000 / 100,
			 version % 100);
	else
		snprintf(part->version, sizeof(part->version), "not available: %.120s",
			 st < 0 ? ct_error_message() : "it does not report its version");
	ct_error_clear();
}

int ct_cuda_parts(struct ct_cuda_part parts[CT_CUDA_N_PARTS])
{
	const struct ct_module_head *module;
	const void *table;
	char release[32];
	size_t (*cudnn)(void);
	void *address;
	int version;

	if (ct_cuda_module_open("ct_cuda_device", &table) < 0) {
		ct_error_clear();
		return 0;
	}
	module = table;
	snprintf(parts[0].name, sizeof(parts[0].name), "libctrain_cuda.so");
	snprintf(parts[0].version, sizeof(parts[0].version), "%.*s", (int)sizeof(module->build) - 1, module->build);
	ct_library_path(table, parts[0].path, sizeof(parts[0].path));
	version = cuda_version("cudaRuntimeGetVersion", &address);
	set_part(&parts[1], libraries[0], address, version, false);
	address = ct_library_symbol(libraries[1], "cudnnGetVersion");
	memcpy(&cudnn, &address, sizeof(cudnn));
	set_part(&parts[2], libraries[1], address, cudnn ? (int)cudnn() : 0, true);
	/* libcudart loads the driver. */
	version = cuda_version("cudaDriverGetVersion", &address);
	set_part(&parts[3], "driver", ct_library_symbol("libcuda.so.1", "cuInit"), version, false);
	driver_release(release, sizeof(release));
	if (version == 0)
		snprintf(parts[3].version, sizeof(parts[3].version), "not installed");
	else
		snprintf(parts[3].version, sizeof(parts[3].version), "%sCUDA %d.%d", release, version / 1000,
			 version % 1000 / 10);
	set_nccl(&parts[4]);
	return CT_CUDA_N_PARTS;
}
