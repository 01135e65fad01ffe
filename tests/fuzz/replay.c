/* Runs a fuzz target on the files of its corpus without libFuzzer: `replay DIRECTORY`. This is one of the regular
 * tests, so that every compiler tests the inputs that once caused a failure. */
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum ct_status replay(const char *path)
{
	uint8_t *exact;
	size_t len;
	char *data;

	CT_TRY(ct_file_read(path, 16 << 20, &data, &len));
	/* A block without the NUL behind it: reading one byte too far is then seen by ASan. */
	exact = ct_calloc(len, 1);
	for (size_t i = 0; exact && i < len; i++)
		exact[i] = (uint8_t)data[i];
	ct_free(data);
	if (!exact)
		return CT_NOMEM;
	LLVMFuzzerTestOneInput(exact, len);
	ct_free(exact);
	return CT_OK;
}

int main(int argc, char **argv)
{
	enum ct_status st = CT_OK;
	char **names;
	size_t n;

	if (argc != 2 || ct_dir_list(argv[1], &names, &n) < 0 || n == 0) {
		fprintf(stderr, "usage: replay FOLDER with files in it\n%s\n", ct_error_message());
		return 2;
	}
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		char *path = ct_path_join(argv[1], names[i]);

		st = path ? replay(path) : CT_NOMEM;
		ct_free(path);
	}
	if (st < 0)
		fprintf(stderr, "%s\n", ct_error_message());
	else
		printf("%zu inputs\n", n);
	ct_dir_list_free(names, n);
	return st < 0;
}
