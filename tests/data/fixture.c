#include "tests/data/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "data/files/inflate.h"
#include "data/formats/idx_impl.h"

struct bytes bytes_copy(const void *p, size_t n)
{
	struct bytes b = {ct_calloc(n, 1), n};

	assert_non_null(b.p);
	if (n)
		memcpy(b.p, p, n);
	return b;
}

struct bytes bytes_join(struct bytes a, struct bytes b)
{
	struct bytes c = {ct_calloc(a.n + b.n, 1), a.n + b.n};

	assert_non_null(c.p);
	if (a.n)
		memcpy(c.p, a.p, a.n);
	if (b.n)
		memcpy(c.p + a.n, b.p, b.n);
	return c;
}

void bytes_release(struct bytes *b)
{
	ct_free(b->p);
	*b = (struct bytes){0};
}

static void store_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

struct bytes idx_images(uint32_t n, uint32_t h, uint32_t w)
{
	size_t body = (size_t)n * h * w;
	struct bytes b = {ct_calloc(16 + body, 1), 16 + body};

	assert_non_null(b.p);
	store_be32(b.p, 0x803);
	store_be32(b.p + 4, n);
	store_be32(b.p + 8, h);
	store_be32(b.p + 12, w);
	for (size_t i = 0; i < body; i++)
		b.p[16 + i] = (uint8_t)(7 * i + i / 256 + 3);
	return b;
}

struct bytes idx_labels(uint32_t n)
{
	struct bytes b = {ct_calloc(8 + (size_t)n, 1), 8 + (size_t)n};

	assert_non_null(b.p);
	store_be32(b.p, 0x801);
	store_be32(b.p + 4, n);
	for (uint32_t i = 0; i < n; i++)
		b.p[8 + i] = (uint8_t)(i % 10);
	return b;
}

struct bytes gzip(struct bytes a)
{
	char *dir = temp_dir(), *path = ct_path_join(dir, "x.gz"), *data;
	struct bytes b = {0};

	assert_ok(ct_deflate_write(path, a.p, a.n, NULL));
	assert_ok(ct_file_read(path, (size_t)1 << 30, &data, &b.n));
	b.p = (uint8_t *)data;
	ct_free(path);
	temp_dir_remove(dir);
	return b;
}

ct_dataset *open_images(uint32_t n, uint32_t h, uint32_t w)
{
	struct ct_dataset_spec spec = {.name = "idx"};
	struct bytes images = idx_images(n, h, w), labels = idx_labels(n);
	ct_dataset *d;

	assert_ok(ct__dataset_idx_open_memory(&spec, images.p, images.n, labels.p, labels.n, &d));
	bytes_release(&images);
	bytes_release(&labels);
	return d;
}

char *temp_dir(void)
{
	const char *base = getenv("TMPDIR");
	char *path = ct_strfmt("%s/ctrain-test-XXXXXX", base && base[0] ? base : "/tmp");

	assert_non_null(path);
	assert_non_null(mkdtemp(path));
	return path;
}

void temp_dir_remove(char *dir)
{
	assert_ok(ct_dir_remove(dir));
	ct_free(dir);
}

char *shared_path(const char *name)
{
	const char *shared = getenv("CTRAIN_SHARED");
	char *dir = ct_strdup(shared && shared[0] ? shared : CT_SOURCE_DIR "/../shared"),
	     *path = ct_path_join(dir, name);

	assert_non_null(path);
	if (!ct_file_exists(path)) {
		print_message("skipped: there is no %s (set CTRAIN_SHARED)\n", path);
		ct_free(path);
		path = NULL;
	}
	ct_free(dir);
	return path;
}

char *source_path(const char *name)
{
	char *path = ct_path_join(CT_SOURCE_DIR, name);

	assert_non_null(path);
	return path;
}

size_t peak_rss_bytes(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return (size_t)u.ru_maxrss * 1024;
}
