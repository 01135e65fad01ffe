#include "tests/data/pack_fixture.h"

#include <string.h>

#include "base/file.h"
#include "tests/data/jpeg_make.h"

void pack_write_file(const char *dir, const char *name, const void *p, size_t n)
{
	char *path = ct_path_join(dir, name), *directory = ct_path_dir(path);

	assert_ok(ct_dir_make(directory));
	assert_ok(ct_file_replace(path, p, n));
	ct_free(directory);
	ct_free(path);
}

void pack_write_text(const char *dir, const char *name, const char *text)
{
	pack_write_file(dir, name, text, strlen(text));
}

void pack_write_image(const char *dir, const char *name, int w, int h)
{
	struct bytes b = jpeg_make(&(struct jpeg_spec){.w = w, .h = h});

	pack_write_file(dir, name, b.p, b.n);
	bytes_release(&b);
}

static enum ct_status pack(const char *dir, const char *src, const char *pattern, struct ct_pack_opts o,
			   struct ct_pack_report *r)
{
	char *path = ct_path_join(dir, pattern);
	enum ct_status st;

	o.src = src;
	o.pattern = path;
	st = ct_pack(&o, r);
	ct_free(path);
	return st;
}

void pack_ok(const char *dir, const char *src, const char *pattern, struct ct_pack_opts o, struct ct_pack_report *r)
{
	assert_ok(pack(dir, src, pattern, o, r));
}

void pack_fails(const char *dir, const char *src, const char *pattern, struct ct_pack_opts o, enum ct_status status,
		const char *says)
{
	struct ct_pack_report r;
	enum ct_status st = pack(dir, src, pattern, o, &r);

	if (st != status || !strstr(ct_error_message(), says))
		print_error("%s %s, hint: %s\n", ct_status_name(st), ct_error_message(), ct_error_hint_text());
	assert_int_equal(st, status);
	assert_non_null(strstr(ct_error_message(), says));
}

ct_dataset *pack_open_set(const char *kind, const char *dir, const char *path)
{
	struct ct_dataset_spec spec = {.name = kind, .dir = dir, .path = path, .threads = 2, .train = true};
	ct_dataset *d;

	assert_ok(ct_dataset_open(&spec, &d));
	return d;
}
