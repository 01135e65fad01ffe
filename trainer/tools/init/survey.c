/* Images are read in blocks by a parallel loop, each with results of its own, and the sums over all images are formed
 * afterwards in the order of the samples, so the result does not depend on the number of threads. Sums within an image
 * are integers. Each range of the loop has its own decoder and stores its own error; the first one in the order of the
 * images is reported. An image that cannot be read or decoded is not an error, but is counted as damaged. Every image
 * has the same weight in the mean, whatever its size. */
#include "trainer/tools/init/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/parallel.h"
#include "trainer/run/metrics/ticker.h"

#define BLOCK 256 /* images between two updates of the progress line */

struct reading {
	const struct ct_survey_opts *o;
	const struct ct_dataset_info *info;
	struct ct_survey *out;
	uint32_t first;          /* image of the current block */
	struct ct_error *errors; /* [BLOCK] of the first image of each range */
};

/* pixels [h rows of w pixels]; the distance between pixels is `step` bytes. c is 1 or at least 3. */
static void add_rows(const uint8_t *pixels, size_t pitch, int w, int h, int step, int c, struct ct_survey_image *im)
{
	uint64_t sum[3] = {0}, squares[3] = {0};
	const double n = (double)w * h;

	for (int y = 0; y < h; y++) {
		const uint8_t *p = pixels + (size_t)y * pitch;

		for (int x = 0; x < w; x++, p += step) {
			for (int k = 0; k < 3; k++) {
				const uint32_t v = p[c >= 3 ? k : 0];

				sum[k] += v;
				squares[k] += (uint64_t)v * v;
			}
		}
	}
	for (int k = 0; k < 3; k++) {
		im->sum[k] = (double)sum[k] / (255 * n);
		im->squares[k] = (double)squares[k] / (255.0 * 255 * n);
	}
}

static void hash(const void *p, size_t n, uint8_t out[CT_SHA256_BYTES])
{
	struct ct_sha256 h;

	ct_sha256_init(&h);
	ct_sha256_update(&h, p, n);
	ct_sha256_final(&h, out);
}

static enum ct_status read_encoded(const struct reading *r, ct_image_decoder *d, struct ct_bytes *buf,
				   struct ct_survey_image *im)
{
	struct ct_image_header header;
	struct ct_pixels px;

	CT_TRY(ct_dataset_label(r->o->data, im->sample, &im->label)); /* also of a damaged image */
	CT_TRY(ct_dataset_fetch(r->o->data, im->sample, buf, NULL));
	hash(buf->data, buf->n, im->hash);
	CT_TRY(ct_image_open(d, buf->data, buf->n, &header));
	CT_TRY(ct_image_decode(d, (struct ct_box){0, 0, header.w, header.h}, 0, 0, &px));
	im->w = header.w;
	im->h = header.h;
	add_rows(px.rgbx, px.pitch, header.w, header.h, 4, 4, im);
	return CT_OK;
}

static enum ct_status read_raw(const struct reading *r, struct ct_bytes *buf, struct ct_survey_image *im)
{
	const struct ct_dataset_info *i = r->info;

	CT_TRY(ct_bytes_reserve(buf, i->sample_bytes));
	CT_TRY(ct_dataset_read(r->o->data, im->sample, buf->data, &im->label, NULL));
	hash(buf->data, i->sample_bytes, im->hash);
	im->w = i->w;
	im->h = i->h;
	add_rows(buf->data, (size_t)i->w * (size_t)i->c, i->w, i->h, i->c, i->c, im);
	return CT_OK;
}

static enum ct_status read_image(const struct reading *r, ct_image_decoder *d, struct ct_bytes *buf,
				 struct ct_survey_image *im)
{
	const enum ct_status st = d ? read_encoded(r, d, buf, im) : read_raw(r, buf, im);
	char where[512];

	if (st == CT_DATA || st == CT_NOT_FOUND) {
		CT_TRY_ALLOC(im->damage = ct_strdup(ct_error_message()));
		ct_error_clear();
		return CT_OK;
	}
	if (st < 0) {
		ct_dataset_describe(r->o->data, im->sample, where, sizeof(where));
		return ct_error_wrap("%s", where);
	}
	return CT_OK;
}

static void read_range(void *arg, int64_t begin, int64_t end)
{
	struct reading *r = arg;
	ct_image_decoder *d = NULL;
	struct ct_bytes buf = {0};
	enum ct_status st = CT_OK;

	if (r->info->kind == CT_SAMPLE_ENCODED)
		st = ct_image_decoder_create(&r->o->image, &d);
	for (int64_t i = begin; i < end && st == CT_OK; i++)
		st = read_image(r, d, &buf, &r->out->images[r->first + (uint32_t)i]);
	if (st < 0) {
		ct_error_save(&r->errors[begin]);
		ct_error_clear();
	}
	ct_image_decoder_destroy(d);
	ct_free(buf.data);
}

static enum ct_status read_all(struct reading *r)
{
	struct ct_survey *s = r->out;
	ct_ticker *ticker;
	enum ct_status st;

	st = ct_ticker_create(r->o->what, &ticker);
	for (r->first = 0; r->first < s->n && st == CT_OK; r->first += BLOCK) {
		const uint32_t n = s->n - r->first < BLOCK ? s->n - r->first : BLOCK;

		ct_parallel_for(r->o->threads, n, 1, read_range, r);
		for (uint32_t i = 0; i < n && st == CT_OK; i++) {
			if (r->errors[i].status < 0)
				st = ct_error_restore(&r->errors[i]);
		}
		ct_ticker_show(ticker, r->first + n, s->n, NULL);
	}
	ct_ticker_destroy(ticker);
	return st;
}

/* Adds in the order of the samples, so that the result does not depend on the number of threads. */
static void summarize(struct ct_survey *s)
{
	double sum[3] = {0}, squares[3] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		const struct ct_survey_image *im = &s->images[i];

		s->n_damaged += im->damage != NULL;
		n += !im->damage;
		for (int k = 0; k < 3 && !im->damage; k++) {
			sum[k] += im->sum[k];
			squares[k] += im->squares[k];
		}
	}
	for (int k = 0; k < 3 && n; k++) {
		s->mean[k] = sum[k] / n;
		s->std[k] = sqrt(fmax(squares[k] / n - s->mean[k] * s->mean[k], 0));
	}
}

static enum ct_status count_classes(const struct ct_survey_opts *o, struct ct_survey *s)
{
	const struct ct_dataset_info *info = ct_dataset_info(o->data);

	s->n_classes = info->n_classes;
	CT_TRY_ALLOC(s->per_class = CT_NEW_ARRAY(uint32_t, (size_t)info->n_classes));
	for (uint32_t i = 0; i < info->n; i++) {
		int32_t label;

		CT_TRY(ct_dataset_label(o->data, i, &label));
		if (label >= 0 && label < info->n_classes)
			s->per_class[label]++;
	}
	return CT_OK;
}

enum ct_status ct_survey_make(const struct ct_survey_opts *o, struct ct_survey *out)
{
	const struct ct_dataset_info *info = ct_dataset_info(o->data);
	struct reading r = {.o = o, .info = info, .out = out};
	enum ct_status st;

	*out = (struct ct_survey){.n = o->max_samples && o->max_samples < info->n ? o->max_samples : info->n};
	if (info->kind == CT_SAMPLE_F32)
		return CT_FAIL(CT_USAGE, "data set %s has no images", info->name);
	CT_TRY_ALLOC(out->images = CT_NEW_ARRAY(struct ct_survey_image, out->n));
	for (uint32_t i = 0; i < out->n; i++)
		out->images[i].sample = (uint32_t)((uint64_t)i * info->n / out->n);
	r.errors = CT_NEW_ARRAY(struct ct_error, BLOCK);
	st = r.errors ? count_classes(o, out) : CT_NOMEM;
	if (st == CT_OK)
		st = read_all(&r);
	ct_free(r.errors);
	if (st < 0)
		ct_survey_release(out);
	else
		summarize(out);
	return st;
}

void ct_survey_release(struct ct_survey *s)
{
	for (uint32_t i = 0; i < s->n && s->images; i++)
		ct_free(s->images[i].damage);
	ct_free(s->images);
	ct_free(s->per_class);
	*s = (struct ct_survey){0};
}

static double measure(const struct ct_survey_image *im, enum ct_survey_measure m)
{
	switch (m) {
	case CT_SURVEY_WIDTH:
		return im->w;
	case CT_SURVEY_HEIGHT:
		return im->h;
	case CT_SURVEY_SHORT_SIDE:
		return im->w < im->h ? im->w : im->h;
	default:
		return (double)im->w / im->h;
	}
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

enum ct_status ct_survey_quantile(const struct ct_survey *s, enum ct_survey_measure m, double q, double *out)
{
	uint32_t n = 0;
	double *v;

	*out = 0;
	CT_TRY_ALLOC(v = CT_NEW_ARRAY(double, s->n));
	for (uint32_t i = 0; i < s->n; i++) {
		if (!s->images[i].damage)
			v[n++] = measure(&s->images[i], m);
	}
	if (n) {
		qsort(v, n, sizeof(*v), ascending);
		*out = v[(uint32_t)(q * (n - 1) + 0.5)];
	}
	ct_free(v);
	return CT_OK;
}
