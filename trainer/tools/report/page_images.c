/* Images are stored in the page: small ones as PNG, so that pixels remain sharp, larger ones reduced by averaging
 * blocks of pixels and stored as JPEG. A section begins with its first image, so there is no heading without images.
 * The filters of the first layer come from the best checkpoint, or from the last one if there is no best one. */
#include <math.h>

#include "base/file.h"
#include "data/image/codec.h"
#include "infer/safetensors.h"
#include "trainer/run/evaluation/run_images.h"
#include "trainer/tools/report/images_impl.h"

enum { MAX_SIDE = 192, PNG_SIDE = 64, QUALITY = 85 };

/* Adds the image rgb [h,w,3] as an <img> element. Large ones are reduced to at most MAX_SIDE pixels: a pixel is the
 * mean of kh rows and kw columns. */
static enum ct_status add_image(struct ct__page *p, const uint8_t *rgb, int h, int w)
{
	const int k = (fmax(h, w) + MAX_SIDE - 1) / MAX_SIDE, kh = fmin(k, h), kw = fmin(k, w), oh = h / kh,
		  ow = w / kw;
	struct ct_str png = {0};
	uint8_t *small = NULL, *jpeg = NULL;
	size_t n = 0;

	CT_TRY_ALLOC(small = CT_NEW_ARRAY(uint8_t, (size_t)oh *(size_t)ow * 3));
	for (int i = 0; i < oh * ow * 3; i++) {
		const int y = i / 3 / ow * kh, x = i / 3 % ow * kw;
		unsigned sum = 0;

		for (int j = 0; j < kh * kw; j++)
			sum += rgb[((size_t)(y + j / kw) * (size_t)w + (size_t)(x + j % kw)) * 3 + (size_t)(i % 3)];
		small[i] = (uint8_t)(sum / (unsigned)(kh * kw));
	}
	const bool pixels = oh <= PNG_SIDE && ow <= PNG_SIDE;
	enum ct_status st =
		pixels ? ct_png_encode(small, ow, oh, &png) : ct_image_encode_jpeg(small, ow, oh, QUALITY, &jpeg, &n);
	if (st == CT_OK && pixels)
		st = ct_str_status(&png);
	if (st == CT_OK) {
		ct_str_addf(&p->html.out, "<img alt=\"\"%s src=\"", pixels ? " class=\"small\"" : "");
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

/* A section that begins with its first image. */
struct section {
	struct ct__page *page;
	const char *title, *note; /* HTML */
	bool begun;
};

/* Adds an image with the name of its class and, below it, the prediction. */
static enum ct_status add_figure(void *user, const struct ct_run_image *image)
{
	struct section *s = user;
	struct ct__page *p = s->page;
	const float *row = image->prediction;
	char name[24];

	if (!s->begun)
		ct_str_addf(&p->html.out, "<h2>%s</h2>\n<p class=\"note\">%s</p>\n<div class=\"images\">\n", s->title,
			    s->note);
	s->begun = true;
	ct_str_add(&p->html.out, "<figure title=\"");
	ct__html_text(&p->html.out, image->key);
	ct_str_add(&p->html.out, "\">");
	CT_TRY(add_image(p, image->rgb, image->h, image->w));
	ct_str_add(&p->html.out, "<figcaption>");
	ct__html_text(&p->html.out, ct_run_image_class(image->set, image->label, name, sizeof(name)));
	if (row) {
		ct_str_add(&p->html.out, "<br><span class=\"bad\">");
		ct__html_text(&p->html.out,
			      ct_run_image_class(image->set, (int)row[CT_PREDICTION_CLASS], name, sizeof(name)));
		ct_str_addf(&p->html.out, "</span> %.1f%%", 100 * (double)row[CT_PREDICTION_CONFIDENCE]);
	}
	ct_str_add(&p->html.out, "</figcaption></figure>\n");
	return CT_OK;
}

static void end_section(struct section *s)
{
	if (s->begun)
		ct_str_add(&s->page->html.out, "</div>\n");
}

enum ct_status ct__page_mistakes(struct ct__page *p, const struct ct_image_source *data, const struct ct_predictions *e)
{
	struct section s = {.page = p,
			    .title = "Worst mistakes",
			    .note = "The label, and below it the wrong prediction with its probability."};

	CT_TRY(ct_run_images_mistakes(data, e, add_figure, &s));
	end_section(&s);
	return CT_OK;
}

enum ct_status ct__page_samples(struct ct__page *p, const struct ct_image_source *data)
{
	struct section s = {
		.page = p,
		.title = "Training images",
		.note = data->mixed
				? "The first images of the first epoch after augmentation, as the model saw them, but without mixup and CutMix."
				: "The first images of the first epoch after augmentation, as the model saw them."};

	CT_TRY(ct_run_images_samples(data, add_figure, &s));
	end_section(&s);
	return CT_OK;
}

static int dims_of(const void *user, int i, int64_t dims[4])
{
	struct ct_tensor_desc d;

	if (i >= ct_safetensors_count(user))
		return -1;
	ct_safetensors_at(user, i, &d, NULL);
	for (int k = 0; k < 4 && k < d.ndim; k++)
		dims[k] = d.dims[k];
	return d.ndim;
}

/* Each filter is an image of its own, so that they form as many columns as the page has space for. */
static enum ct_status add_filters(struct ct__page *p, const struct ct_filters *l, const float *v)
{
	struct ct_filters one = *l;
	struct ct_str png = {0};
	enum ct_status st = CT_OK;

	one.n = 1;
	ct_str_add(&p->html.out, "<div class=\"card pad filters\">");
	for (int k = 0; k < l->n && st == CT_OK; k++) {
		ct_str_clear(&png);
		st = ct_run_images_draw_filters(&one, v + (size_t)k * (size_t)(l->c * l->h * l->w), &png);
		ct_str_add(&p->html.out, "<img class=\"small\" alt=\"\" src=\"");
		ct__html_data_url(&p->html.out, "image/png", png.s, png.len);
		ct_str_add(&p->html.out, "\">");
	}
	ct_str_add(&p->html.out, "</div>\n");
	ct_str_release(&png);
	return st;
}

static enum ct_status show_filters(struct ct__page *p, const struct ct_image_source *data, const ct_safetensors *t)
{
	struct ct_tensor_desc d;
	struct ct_filters l;
	const int i = ct_run_images_find_filters(data, dims_of, t, &l);
	float *v;

	if (i < 0)
		return CT_OK;
	ct_safetensors_at(t, i, &d, NULL);
	CT_TRY_ALLOC(v = CT_NEW_ARRAY(float, ct_tensor_n(&d)));
	enum ct_status st = ct_safetensors_read(t, i, v, ct_tensor_n(&d));
	if (st == CT_OK) {
		ct_str_add(&p->html.out, "<h2>Weights of the first layer</h2>\n<p class=\"note\"><code>");
		ct__html_text(&p->html.out, d.name);
		ct_str_addf(&p->html.out,
			    "</code>, %d of %lld filters, each from its lowest to its highest value.</p>\n", l.n,
			    (long long)l.total);
		st = add_filters(p, &l, v);
	}
	ct_free(v);
	return st;
}

enum ct_status ct__page_filters(struct ct__page *p, const struct ct_image_source *data)
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
