/* Each sample has a random generator of its own, keyed by the seed and the number of the sample, so threads may draw
 * chunks in any order. Samples of the test set have numbers that no training set has. All targets are checked before
 * anything is drawn or written: a file may be replaced only if its gzip comment shows that it was drawn here, and a
 * file under another spelling that the reader would prefer is an error. A split is built in memory as complete IDX
 * files. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/work_queue.h"
#include "data/digits/digits.h"
#include "data/files/inflate.h"

#define PIXELS (28 * 28)
#define IMAGE_HEADER 16
#define LABEL_HEADER 8
#define CHUNK 256
#define MAX_SAMPLES 10000000u
#define COMMENT "drawn by ctrain data digits"
#define TEST_FIRST 0x80000000u /* sample numbers of the test set, distinct from those of any training set */

struct split {
	uint64_t seed;
	uint32_t n, first;
	uint8_t *images, *labels; /* IDX files */
};

static void store_be32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static enum ct_status draw_some(ct_work_queue *q, void *arg)
{
	struct split *s = arg;
	size_t chunk;

	while (ct_work_next(q, &chunk)) {
		uint32_t i = (uint32_t)chunk * CHUNK;

		for (uint32_t end = s->n - i < CHUNK ? s->n : i + CHUNK; i < end; i++) {
			struct ct_rng r;
			uint32_t digit;

			ct_rng_init(&r, s->seed, CT_RNG_DIGITS, 1, s->first + i);
			digit = ct_rng_below(&r, 10);
			s->labels[LABEL_HEADER + i] = (uint8_t)digit;
			ct_digits_draw(s->seed, s->first + i, (int)digit,
				       s->images + IMAGE_HEADER + (size_t)i * PIXELS);
		}
	}
	return CT_OK;
}

static enum ct_status refuse(const struct ct_digits_opts *opts, const char *path, bool written)
{
	CT_FAIL(CT_USAGE, "%s exists and was not drawn by ctrain. It may be real data, so nothing was written", path);
	if (written)
		ct_error_hint("choose another directory (--out DIR), or use --force to replace the files in %s",
			      opts->dir);
	else
		ct_error_hint("choose another directory (--out DIR), or move this file away: it would be read "
			      "instead of a drawn one");
	return CT_USAGE;
}

/* All file names that the MNIST reader accepts for one file. Only the last one is ever written. */
static enum ct_status check_target(const struct ct_digits_opts *opts, const char *split, const char *what,
				   const char *idx)
{
	static const struct {
		const char *separator, *suffix;
		bool written;
	} spellings[] = {{"-", "", false}, {".", "", false}, {".", ".gz", false}, {"-", ".gz", true}};

	for (size_t i = 0; i < CT_ARRAY_LEN(spellings); i++) {
		bool written = spellings[i].written;
		enum ct_status st = CT_OK;
		char *path;

		CT_TRY_ALLOC(path = ct_strfmt("%s/%s-%s%s%s-ubyte%s", opts->dir, split, what, spellings[i].separator,
					      idx, spellings[i].suffix));
		if (ct_file_exists(path) && !(written && (opts->force || ct_deflate_has_comment(path, COMMENT))))
			st = refuse(opts, path, written);
		ct_free(path);
		CT_TRY(st);
	}
	return CT_OK;
}

static enum ct_status check_targets(const struct ct_digits_opts *opts)
{
	static const char *const splits[] = {"train", "t10k"};

	for (size_t i = 0; i < CT_ARRAY_LEN(splits); i++) {
		CT_TRY(check_target(opts, splits[i], "images", "idx3"));
		CT_TRY(check_target(opts, splits[i], "labels", "idx1"));
	}
	return CT_OK;
}

static enum ct_status write_one(const char *dir, const char *split, const char *what, const uint8_t *data, size_t n)
{
	enum ct_status st;
	char *path;

	CT_TRY_ALLOC(path = ct_strfmt("%s/%s-%s-ubyte.gz", dir, split, what));
	st = ct_deflate_write(path, data, n, COMMENT);
	ct_free(path);
	return st;
}

static enum ct_status write_split(const struct ct_digits_opts *opts, const char *name, uint32_t n, uint32_t first,
				  int n_threads)
{
	struct split s = {.seed = opts->seed, .n = n, .first = first};
	size_t image_bytes = IMAGE_HEADER + (size_t)n * PIXELS, label_bytes = LABEL_HEADER + n;
	enum ct_status st = CT_NOMEM;

	CT_TRY_ALLOC(s.images = ct_calloc_aligned(64, image_bytes));
	s.labels = ct_calloc(1, label_bytes);
	if (!s.labels)
		goto done_images;
	store_be32(s.images, 0x803);
	store_be32(s.images + 4, n);
	store_be32(s.images + 8, 28);
	store_be32(s.images + 12, 28);
	store_be32(s.labels, 0x801);
	store_be32(s.labels + 4, n);
	CT_TRY_GOTO(ct_work_run((n + CHUNK - 1) / CHUNK, n_threads, "ctrain-digits", draw_some, &s), st, done_labels);
	CT_TRY_GOTO(write_one(opts->dir, name, "images-idx3", s.images, image_bytes), st, done_labels);
	CT_TRY_GOTO(write_one(opts->dir, name, "labels-idx1", s.labels, label_bytes), st, done_labels);
done_labels:
	ct_free(s.labels);
done_images:
	ct_free_aligned(s.images);
	return st;
}

enum ct_status ct_digits_write(const struct ct_digits_opts *opts)
{
	int n_threads = opts->threads > 0 ? opts->threads : ct_cpu_count();

	if (opts->n_train == 0 || opts->n_test == 0 || opts->n_train > MAX_SAMPLES || opts->n_test > MAX_SAMPLES)
		return CT_FAIL(CT_USAGE, "cannot draw %u + %u digits: both numbers must be in 1..%u", opts->n_train,
			       opts->n_test, MAX_SAMPLES);
	CT_TRY(check_targets(opts));
	CT_TRY(ct_dir_make(opts->dir));
	CT_TRY(write_split(opts, "train", opts->n_train, 0, n_threads));
	CT_TRY(write_split(opts, "t10k", opts->n_test, TEST_FIRST, n_threads));
	return CT_OK;
}
