#include "tests/data/tar_fixture.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

void tar_checksum(uint8_t block[512])
{
	unsigned sum = 0;

	memset(block + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += block[i];
	snprintf((char *)block + 148, 8, "%06o", sum);
	block[155] = ' ';
}

void tar_header(uint8_t block[512], enum tar_format format, const char *name, char type, uint64_t size)
{
	size_t n = strlen(name);

	memset(block, 0, 512);
	memcpy(block, name, n < 100 ? n : 100);
	memcpy(block + 100, "0000644", 7);
	memcpy(block + 108, "0000000", 7);
	memcpy(block + 116, "0000000", 7);
	snprintf((char *)block + 124, 12, "%011llo", (unsigned long long)size);
	memcpy(block + 136, "13600000000", 11);
	block[156] = (uint8_t)type;
	if (format == TAR_USTAR)
		memcpy(block + 257,
		       "ustar\0"
		       "00",
		       8);
	else if (format == TAR_GNU)
		memcpy(block + 257, "ustar  ", 8);
	tar_checksum(block);
}

void tar_raw(struct bytes *t, const void *p, size_t n)
{
	t->p = ct_realloc(t->p, t->n + n, 1);
	assert_non_null(t->p);
	if (n)
		memcpy(t->p + t->n, p, n);
	t->n += n;
}

void tar_typed(struct bytes *t, enum tar_format format, const char *name, char type, const void *data, size_t n)
{
	static const uint8_t zeros[512];
	uint8_t block[512];

	tar_header(block, format, name, type, n);
	tar_raw(t, block, sizeof(block));
	tar_raw(t, data, n);
	tar_raw(t, zeros, (512 - n % 512) % 512);
}

void tar_member(struct bytes *t, const char *name, const void *data, size_t n)
{
	tar_typed(t, TAR_USTAR, name, '0', data, n);
}

void tar_text(struct bytes *t, const char *name, const char *text)
{
	tar_member(t, name, text, strlen(text));
}

char *pax_record(const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, n = body, before = 0;
	char digits[24];

	while (n != before) {
		before = n;
		n = body + (size_t)snprintf(digits, sizeof(digits), "%zu", n);
	}
	return ct_strfmt("%zu %s=%s\n", n, key, value);
}

void tar_end(struct bytes *t)
{
	static const uint8_t zeros[1024];

	tar_raw(t, zeros, sizeof(zeros));
}

void tar_sample(struct bytes *t, const char *key, int label, size_t n)
{
	char *image = ct_strfmt("%s.jpg", key), *cls = ct_strfmt("%s.cls", key), *text = ct_strfmt("%d", label);
	uint8_t *data = ct_calloc(n, 1);

	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 5 + (size_t)label);
	data[0] = 0xff;
	data[1] = 0xd8;
	tar_member(t, image, data, n);
	tar_text(t, cls, text);
	ct_free(data);
	ct_free(text);
	ct_free(cls);
	ct_free(image);
}

void file_write(const char *dir, const char *name, const void *p, size_t n)
{
	char *path = ct_path_join(dir, name);

	assert_ok(ct_file_replace(path, p, n));
	ct_free(path);
}

void text_write(const char *dir, const char *name, const char *text)
{
	file_write(dir, name, text, strlen(text));
}

void shard_write(const char *dir, const char *name, const char *prefix, int n, int first)
{
	struct bytes t = {0};

	for (int i = 0; i < n; i++) {
		char *key = ct_strfmt("%s%03d", prefix, i);

		tar_sample(&t, key, first + i, 700 + (size_t)i);
		ct_free(key);
	}
	tar_end(&t);
	file_write(dir, name, t.p, t.n);
	bytes_release(&t);
}

struct shard_place shard_place_make(void)
{
	struct shard_place p = {.dir = temp_dir()};

	shard_write(p.dir, "s.tar", "k", 5, 10);
	p.shard = ct_path_join(p.dir, "s.tar");
	p.kept = ct_shard_index_path(p.shard, NULL);
	return p;
}

void shard_place_remove(struct shard_place *p)
{
	ct_free(p->shard);
	ct_free(p->kept);
	temp_dir_remove(p->dir);
}

void expect_indexed(const struct ct_shard_index *x, uint32_t i, const char *key, int label, uint32_t size)
{
	assert_true(i < x->n);
	assert_string_equal(x->text + x->samples[i].key, key);
	assert_int_equal(x->samples[i].key_len, strlen(key));
	assert_int_equal(x->samples[i].label, label);
	assert_int_equal(x->samples[i].size, size);
}

void expect_open(const struct shard_place *p, enum ct_shard_source want, uint32_t n)
{
	enum ct_shard_source source;
	struct ct_shard_index x;

	assert_ok(ct_shard_index_open(p->shard, NULL, &x, &source));
	assert_int_equal(source, want);
	assert_int_equal(x.n, n);
	expect_indexed(&x, 1, "k001", 11, 701);
	ct_shard_index_release(&x);
}
