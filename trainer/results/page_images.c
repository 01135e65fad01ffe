#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/image/codec.h"
#include "data/transform/transform.h"
#include "infer/safetensors.h"
#include "trainer/results/images_impl.h"

enum { MAX_MISTAKES = 24, MAX_SAMPLES = 24, MAX_FILTERS = 64, FILTER_COLUMNS = 16, FILTER_SIDE = 64, MAX_SIDE = 192, PNG_SIDE = 64, QUALITY = 85 };

/* Adds the image rgb [h,w,3] as an <img> element. Large ones are reduced to at most MAX_SIDE pixels: a pixel is the mean of
 * kh rows and kw columns. */
static enum ct_status add_image(struct ct__page *p, const uint8_t *rgb, int h, int w)
{
	const int k = (fmax(h, w) + MAX_SIDE - 1) / MAX_SIDE, kh = fmin(k, h), kw = fmin(k, w), oh = h / kh, ow = w / kw;
	struct ct_str png = {0};
	uint8_t *small = NULL, *jpeg = NULL;
	size_t n = 0;
	CT_TRY_ALLOC(small = CT_NEW_ARRAY(uint8_t, (size_t)oh * (size_t)ow * 3));
	for (int i = 0; i < oh * ow * 3; i++) {
		const int y = i / 3 / ow * kh, x = i / 3 % ow * kw;
		unsigned sum = 0;
		for (int j = 0; j < kh * kw; j++)
			sum += rgb[((size_t)(y + j / kw) * (size_t)w + (size_t)(x + j % kw)) * 3 + (size_t)(i % 3)];
		small[i] = (uint8_t)(sum / (unsigned)(kh * kw));
	}
	const bool pixels = oh <= PNG_SIDE && ow <= PNG_SIDE;
	enum ct_status st = pixels ? ct_png_encode(small, ow, oh, &png)
				   : ct_image_encode_jpeg(small, ow, oh, QUALITY, &jpeg, &n);
	if (st == CT_OK && pixels)
		st = ct_str_status(&png);
	if (st == CT_OK) {
		ct_str_addf(&p->html.out, "<img alt=\"\" loading=\"lazy\"%s src=\"", pixels ? " class=\"small\"" : "");
		if (pixels)
			ct__html_data_url(&p->html.out, "image/png", png.s, png.len);
		else
			ct__html_data_url(&p->html.out, "image/jpeg", jpeg, n);
		ct_str_add(&p->html.out, "\">");
	}
	ct_str_release(&png);
	ct_free(jpeg);
	ct_free(small);
	return st;
}

/* Reads samples of a data set as the model does. */
struct reader {
	const struct ct_report_data *data;
	const ct_dataset *set;
	ct_transformer *t;
	int h, w, c;
	uint8_t *x, *rgb; /* [h,w,c], [h,w,3] */
};

static enum ct_status reader_init(struct reader *r, const struct ct_report_data *data, const ct_dataset *set,
				  const struct ct_transform *t, int h, int w)
{
	const struct ct_dataset_info *info = ct_dataset_info(set);
	*r = (struct reader){.data = data, .set = set, .h = h, .w = w, .c = info->kind == CT_SAMPLE_ENCODED ? 3 : info->c};
	CT_TRY(ct_transformer_create(t, set, &r->t));
	ct_transformer_resize(r->t, h, w);
	CT_TRY_ALLOC(r->x = CT_NEW_ARRAY(uint8_t, (size_t)h * (size_t)w * (size_t)r->c));
	CT_TRY_ALLOC(r->rgb = CT_NEW_ARRAY(uint8_t, (size_t)h * (size_t)w * 3));
	return CT_OK;
}

static void reader_release(struct reader *r)
{
	ct_transformer_destroy(r->t);
	ct_free(r->x);
	ct_free(r->rgb);
}

/* Reads a sample to r->rgb. Returns false if it is not readable. */
static bool read_sample(struct reader *r, uint32_t i, int32_t *label)
{
	if (ct_transformer_run(r->t, (uint64_t)r->data->seed, 0, i, r->x, label) < 0) {
		ct_error_clear();
		return false;
	}
	for (int k = 0; k < r->h * r->w * 3; k++)
		r->rgb[k] = r->x[(size_t)(k / 3) * (size_t)r->c + (size_t)(r->c >= 3 ? k % 3 : 0)];
	return true;
}

static enum ct_status add_sample(struct ct__page *p, struct reader *r, uint32_t i, int32_t *label)
{
	char key[512];
	if (!read_sample(r, i, label))
		return CT_NOT_FOUND;
	ct_dataset_key(r->set, i, key, sizeof(key));
	ct_str_add(&p->html.out, "<figure title=\"");
	ct__html_text(&p->html.out, key);
	ct_str_add(&p->html.out, "\">");
	CT_TRY(add_image(p, r->rgb, r->h, r->w));
	ct_str_add(&p->html.out, "<figcaption>");
	return CT_OK;
}

static const char *name_of(const ct_dataset *d, int k, char *buf, size_t size)
{
	const char *name = ct_dataset_class_name(d, k);
	snprintf(buf, size, "class %d", k);
	return name ? name : buf;
}

/* Finds the mistakes with the highest confidence: ids [MAX_MISTAKES], the worst first. */
static int find_mistakes(const struct ct_predictions *e, uint32_t *ids)
{
	int n = 0;
	for (uint32_t i = 0; i < e->n; i++) {
		const float *row = ct_predictions_row(e, i);
		if (row[CT_PREDICTION_COUNT] == 0 || row[CT_PREDICTION_LABEL] == row[CT_PREDICTION_CLASS])
			continue;
		int at = n < MAX_MISTAKES ? n++ : MAX_MISTAKES;
		while (at > 0 && row[CT_PREDICTION_CONFIDENCE] > ct_predictions_row(e, ids[at - 1])[CT_PREDICTION_CONFIDENCE]) {
			if (at < MAX_MISTAKES)
				ids[at] = ids[at - 1];
			at--;
		}
		if (at < MAX_MISTAKES)
			ids[at] = i;
	}
	return n;
}

static enum ct_status add_mistake(struct ct__page *p, struct reader *r, uint32_t i, const float *row)
{
	char a[24], b[24];
	int32_t label;
	const enum ct_status st = add_sample(p, r, i, &label);
	if (st == CT_NOT_FOUND)
		return CT_OK;
	CT_TRY(st);
	ct__html_text(&p->html.out, name_of(r->set, (int)row[CT_PREDICTION_LABEL], a, sizeof(a)));
	ct_str_add(&p->html.out, "<br><span class=\"bad\">");
	ct__html_text(&p->html.out, name_of(r->set, (int)row[CT_PREDICTION_CLASS], b, sizeof(b)));
	ct_str_addf(&p->html.out, "</span> %.1f%%</figcaption></figure>\n", 100 * (double)row[CT_PREDICTION_CONFIDENCE]);
	return CT_OK;
}

enum ct_status ct__page_mistakes(struct ct__page *p, const struct ct_report_data *data, const struct ct_predictions *e)
{
	uint32_t ids[MAX_MISTAKES];
	const int n = find_mistakes(e, ids);
	struct reader r;
	if (n == 0 || !data->val || ct_dataset_info(data->val)->n != e->n)
		return CT_OK;
	enum ct_status st = reader_init(&r, data, data->val, &data->val_transform, data->val_h, data->val_w);
	ct_str_add(&p->html.out, "<h2>Worst mistakes</h2>\n<p class=\"note\">The label, and below it the wrong prediction with its "
				 "probability.</p>\n<div class=\"images\">\n");
	for (int i = 0; i < n && st == CT_OK; i++)
		st = add_mistake(p, &r, ids[i], ct_predictions_row(e, ids[i]));
	ct_str_add(&p->html.out, "</div>\n");
	reader_release(&r);
	return st;
}

enum ct_status ct__page_samples(struct ct__page *p, const struct ct_report_data *data)
{
	uint32_t *order = NULL;
	struct reader r;
	char name[24];
	/* Balanced sampling draws the samples of each class, which only the loader of the run could do again. */
	if (!data->train || data->sampler.balanced)
		return CT_OK;
	enum ct_status st = reader_init(&r, data, data->train, &data->transform, data->h, data->w);
	if (st == CT_OK && !(order = CT_NEW_ARRAY(uint32_t, data->sampler.n)))
		st = CT_NOMEM;
	if (st == CT_OK)
		ct_sampler_order(&data->sampler, 0, order);
	ct_str_addf(&p->html.out,
		    "<h2>Training images</h2>\n<p class=\"note\">The first images of the first epoch after augmentation, as the "
		    "model saw them%s.</p>\n<div class=\"images\">\n",
		    data->mixed ? ", but without mixup and CutMix" : "");
	for (uint32_t i = 0; i < MAX_SAMPLES && i < data->sampler.n && st == CT_OK; i++) {
		int32_t label = 0;
		st = add_sample(p, &r, order[i], &label);
		if (st == CT_OK) {
			ct__html_text(&p->html.out, name_of(data->train, label, name, sizeof(name)));
			ct_str_add(&p->html.out, "</figcaption></figure>\n");
		}
		st = st == CT_NOT_FOUND ? CT_OK : st;
	}
	ct_str_add(&p->html.out, "</div>\n");
	ct_free(order);
	reader_release(&r);
	return st;
}

/* Large filters would make a page of many megabytes. */
static bool is_small(int64_t h, int64_t w)
{
	return h <= FILTER_SIDE && w <= FILTER_SIDE;
}

/* Finds weights [K,C,R,S] of a convolution, or [K,C*H*W] of a linear layer, that read images, if the filters are small.
 * Returns -1 if there are none. */
static int find_filters(const ct_safetensors *t, int c, int h, int w, struct ct_tensor_desc *out)
{
	for (int linear = 0; linear < 2; linear++) {
		for (int i = 0; i < ct_safetensors_count(t); i++) {
			ct_safetensors_at(t, i, out, NULL);
			if (!linear && out->ndim == 4 && out->dims[1] == c && out->dims[2] > 1 && out->dims[3] > 1)
				return is_small(out->dims[2], out->dims[3]) ? i : -1;
			if (linear && out->ndim == 2 && out->dims[1] == (int64_t)c * h * w)
				return is_small(h, w) ? i : -1;
		}
	}
	return -1;
}

/* Draws n filters v [n,c,h,w] side by side, each with its own range of values. */
static enum ct_status add_filters(struct ct__page *p, const float *v, int n, int c, int h, int w)
{
	const int columns = n < FILTER_COLUMNS ? n : FILTER_COLUMNS, rows = (n + columns - 1) / columns;
	const int width = columns * (w + 1) - 1, height = rows * (h + 1) - 1;
	struct ct_str png = {0};
	uint8_t *rgb;
	CT_TRY_ALLOC(rgb = CT_NEW_ARRAY(uint8_t, (size_t)width * (size_t)height * 3));
	memset(rgb, 128, (size_t)width * (size_t)height * 3);
	for (int k = 0; k < n; k++) {
		const float *f = v + (size_t)k * (size_t)(c * h * w);
		float low = f[0], high = f[0];
		for (int i = 1; i < c * h * w; i++) {
			low = fminf(low, f[i]);
			high = fmaxf(high, f[i]);
		}
		for (int i = 0; i < h * w * 3; i++) {
			const int y = k / columns * (h + 1) + i / 3 / w, x = k % columns * (w + 1) + i / 3 % w;
			const float value = f[(c >= 3 ? i % 3 : 0) * h * w + i / 3];
			rgb[((size_t)y * (size_t)width + (size_t)x) * 3 + (size_t)(i % 3)] =
				(uint8_t)(high > low ? 255 * (value - low) / (high - low) : 128);
		}
	}
	enum ct_status st = ct_png_encode(rgb, width, height, &png);
	if (st == CT_OK)
		st = ct_str_status(&png);
	if (st == CT_OK) {
		ct_str_add(&p->html.out, "<div class=\"card pad\"><img class=\"filters small\" alt=\"\" src=\"");
		ct__html_data_url(&p->html.out, "image/png", png.s, png.len);
		ct_str_add(&p->html.out, "\"></div>\n");
	}
	ct_str_release(&png);
	ct_free(rgb);
	return st;
}

static enum ct_status show_filters(struct ct__page *p, const struct ct_report_data *data, const ct_safetensors *t)
{
	const ct_dataset *set = data->train ? data->train : data->val;
	const int c = ct_dataset_info(set)->kind == CT_SAMPLE_ENCODED ? 3 : ct_dataset_info(set)->c;
	struct ct_tensor_desc d;
	const int i = find_filters(t, c, data->h, data->w, &d);
	float *v;
	if (i < 0 || ct_tensor_n(&d) == 0)
		return CT_OK;
	const int n = d.dims[0] < MAX_FILTERS ? (int)d.dims[0] : MAX_FILTERS;
	CT_TRY_ALLOC(v = CT_NEW_ARRAY(float, ct_tensor_n(&d)));
	enum ct_status st = ct_safetensors_read(t, i, v, ct_tensor_n(&d));
	if (st == CT_OK) {
		ct_str_add(&p->html.out, "<h2>Weights of the first layer</h2>\n<p class=\"note\"><code>");
		ct__html_text(&p->html.out, d.name);
		ct_str_addf(&p->html.out, "</code>, %d of %lld filters, each from its lowest to its highest value.</p>\n", n,
			    (long long)d.dims[0]);
		st = add_filters(p, v, n, c, d.ndim == 4 ? (int)d.dims[2] : data->h, d.ndim == 4 ? (int)d.dims[3] : data->w);
	}
	ct_free(v);
	return st;
}

enum ct_status ct__page_filters(struct ct__page *p, const struct ct_report_data *data)
{
	static const char *const which[] = {"best", "last"};
	enum ct_status st = CT_OK;
	if (!data->train && !data->val)
		return CT_OK;
	for (int i = 0; i < 2; i++) {
		char *path;
		ct_safetensors *t;
		CT_TRY_ALLOC(path = ct_strfmt("%s/checkpoints/%s/model.safetensors", p->runs[0].dir, which[i]));
		const bool exists = ct_file_exists(path);
		if (exists && (st = ct_safetensors_open(path, &t)) == CT_OK) {
			st = show_filters(p, data, t);
			ct_safetensors_close(t);
		}
		ct_free(path);
		if (exists)
			break;
	}
	return st;
}
