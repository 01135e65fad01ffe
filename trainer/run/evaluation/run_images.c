/* Images are read with the transforms of the run, so the report shows what the model has got: training samples in the
 * order and with the augmentation of epoch 0, mistakes as in an evaluation. The worst mistakes are found by insertion
 * into a list of at most MAX_IMAGES. Mistakes are shown only if the predictions have one row for each sample of the
 * present data set. A sample that cannot be read is left out, and its error is cleared: the report must not fail
 * because of it. */
#include "trainer/run/evaluation/run_images.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/image/codec.h"
#include "data/image/grid.h"
#include "data/loader/class_order.h"
#include "data/transform/transform.h"

enum { MAX_IMAGES = 24, MAX_FILTERS = 64, FILTER_COLUMNS = 16, FILTER_SIDE = 64 };

void ct_image_source_set(struct ct_image_source *d, const struct ct_config *c, const struct ct_run_plan *p,
			 const ct_dataset *train, const ct_dataset *val)
{
	/* Rows of numbers are not images. */
	const bool images = (train || val) && ct_dataset_info(train ? train : val)->kind != CT_SAMPLE_F32;
	const struct ct_shape in = train ? ct_plan_input_at(p, 0) : p->val_input;

	*d = (struct ct_image_source){.train = images ? train : NULL,
				      .val = images ? val : NULL,
				      .transform = p->transform,
				      .val_transform = p->val_transform,
				      .sampler = p->train,
				      .h = in.h,
				      .w = in.w,
				      .val_h = p->val_input.h,
				      .val_w = p->val_input.w,
				      .seed = c->run.seed,
				      .mixed = p->mixup > 0 || p->cutmix > 0};
}

const char *ct_run_image_class(const ct_dataset *d, int k, char *buf, size_t size)
{
	const char *name = ct_dataset_class_name(d, k);

	snprintf(buf, size, "class %d", k);
	return name ? name : buf;
}

/* Reads samples of a data set as the model does. */
struct reader {
	const ct_dataset *set;
	ct_transformer *t;
	int h, w, c;
	uint8_t *x, *rgb; /* [h,w,c], [h,w,3] */
};

static enum ct_status reader_init(struct reader *r, const ct_dataset *set, const struct ct_transform *t, int h, int w)
{
	const struct ct_dataset_info *info = ct_dataset_info(set);

	*r = (struct reader){.set = set, .h = h, .w = w, .c = info->kind == CT_SAMPLE_ENCODED ? 3 : info->c};
	CT_TRY(ct_transformer_create(t, set, &r->t));
	ct_transformer_resize(r->t, h, w);
	CT_TRY_ALLOC(r->x = CT_NEW_ARRAY(uint8_t, (size_t)h *(size_t)w *(size_t)r->c));
	CT_TRY_ALLOC(r->rgb = CT_NEW_ARRAY(uint8_t, (size_t)h *(size_t)w * 3));
	return CT_OK;
}

static void reader_release(struct reader *r)
{
	ct_transformer_destroy(r->t);
	ct_free(r->x);
	ct_free(r->rgb);
}

/* Reads a sample as in epoch 0 to r->rgb. Returns false if it is not readable. */
static bool read_sample(struct reader *r, uint64_t seed, uint32_t i, int32_t *label)
{
	if (ct_transformer_run(r->t, seed, 0, i, r->x, label) < 0) {
		ct_error_clear();
		return false;
	}
	for (int k = 0; k < r->h * r->w * 3; k++)
		r->rgb[k] = r->x[(size_t)(k / 3) * (size_t)r->c + (size_t)(r->c >= 3 ? k % 3 : 0)];
	return true;
}

/* Passes a sample on, unless it cannot be read. */
static enum ct_status give_sample(struct reader *r, uint64_t seed, uint32_t i, const float *prediction,
				  ct_run_image_fn fn, void *user)
{
	struct ct_run_image image = {.rgb = r->rgb, .h = r->h, .w = r->w, .set = r->set, .prediction = prediction};

	if (!read_sample(r, seed, i, &image.label))
		return CT_OK;
	ct_dataset_key(r->set, i, image.key, sizeof(image.key));
	return fn(user, &image);
}

/* Finds the mistakes with the highest confidence: ids [MAX_IMAGES], the worst first. */
static int find_mistakes(const struct ct_predictions *e, uint32_t *ids)
{
	int n = 0;

	for (uint32_t i = 0; i < e->n; i++) {
		const float *row = ct_predictions_row(e, i);

		if (row[CT_PREDICTION_COUNT] == 0 || row[CT_PREDICTION_LABEL] == row[CT_PREDICTION_CLASS])
			continue;
		int at = n < MAX_IMAGES ? n++ : MAX_IMAGES;
		while (at > 0 &&
		       row[CT_PREDICTION_CONFIDENCE] > ct_predictions_row(e, ids[at - 1])[CT_PREDICTION_CONFIDENCE]) {
			if (at < MAX_IMAGES)
				ids[at] = ids[at - 1];
			at--;
		}
		if (at < MAX_IMAGES)
			ids[at] = i;
	}
	return n;
}

enum ct_status ct_run_images_mistakes(const struct ct_image_source *data, const struct ct_predictions *e,
				      ct_run_image_fn fn, void *user)
{
	uint32_t ids[MAX_IMAGES];
	const int n = find_mistakes(e, ids);
	struct reader r;

	if (n == 0 || !data->val || ct_dataset_info(data->val)->n != e->n)
		return CT_OK;
	enum ct_status st = reader_init(&r, data->val, &data->val_transform, data->val_h, data->val_w);
	for (int i = 0; i < n && st == CT_OK; i++)
		st = give_sample(&r, (uint64_t)data->seed, ids[i], ct_predictions_row(e, ids[i]), fn, user);
	reader_release(&r);
	return st;
}

enum ct_status ct_run_images_samples(const struct ct_image_source *data, ct_run_image_fn fn, void *user)
{
	struct ct_sampler sampler = data->sampler;
	struct ct_class_order classes = {0};
	uint32_t *order = NULL;
	struct reader r;

	if (!data->train)
		return CT_OK;
	enum ct_status st = reader_init(&r, data->train, &data->transform, data->h, data->w);
	if (st == CT_OK)
		st = ct_class_order_make(data->train, &sampler, &classes);
	if (st == CT_OK && !(order = CT_NEW_ARRAY(uint32_t, sampler.n)))
		st = CT_NOMEM;
	if (st == CT_OK)
		ct_sampler_order(&sampler, 0, order);
	for (uint32_t i = 0; i < MAX_IMAGES && i < sampler.n && st == CT_OK; i++)
		st = give_sample(&r, ct_sampler_augment_seed(&sampler, i), order[i], NULL, fn, user);
	ct_free(order);
	ct_class_order_release(&classes);
	reader_release(&r);
	return st;
}

/* Large filters would make a page of many megabytes. */
static bool is_small(int64_t h, int64_t w)
{
	return h <= FILTER_SIDE && w <= FILTER_SIDE;
}

int ct_run_images_find_filters(const struct ct_image_source *data, ct_tensor_dims_fn dims_of, const void *user,
			       struct ct_filters *out)
{
	const ct_dataset *set = data->train ? data->train : data->val;
	const int c = !set ? 0 : ct_dataset_info(set)->kind == CT_SAMPLE_ENCODED ? 3 : ct_dataset_info(set)->c;
	int64_t d[4];

	for (int n_dims = 4; set && n_dims >= 2; n_dims -= 2) { /* convolutions, then linear layers */
		for (int i = 0, n; (n = dims_of(user, i, d)) >= 0; i++) {
			if (n != n_dims || d[0] == 0)
				continue;
			if (n == 4 ? d[1] != c || d[2] <= 1 || d[3] <= 1 : d[1] != (int64_t)c * data->h * data->w)
				continue;
			const int64_t h = n == 4 ? d[2] : data->h, w = n == 4 ? d[3] : data->w;
			*out = (struct ct_filters){.total = d[0],
						   .n = d[0] < MAX_FILTERS ? (int)d[0] : MAX_FILTERS,
						   .c = c,
						   .h = (int)h,
						   .w = (int)w};
			return is_small(h, w) ? i : -1;
		}
	}
	return -1;
}

static struct ct_image_grid filter_grid(const struct ct_filters *l)
{
	return (struct ct_image_grid){.n = l->n,
				      .columns = l->n < FILTER_COLUMNS ? l->n : FILTER_COLUMNS,
				      .cell_w = l->w,
				      .cell_h = l->h,
				      .gap = 1};
}

void ct_run_images_filters_size(const struct ct_filters *l, int *width, int *height)
{
	const struct ct_image_grid g = filter_grid(l);
	int64_t w, h;

	ct_image_grid_size(&g, &w, &h);
	*width = (int)w;
	*height = (int)h;
}

enum ct_status ct_run_images_draw_filters(const struct ct_filters *l, const float *v, struct ct_str *png)
{
	const int c = l->c, h = l->h, w = l->w;
	struct ct_image_grid g = filter_grid(l);

	CT_TRY(ct_image_grid_create(&g, 128));
	for (int k = 0; k < l->n; k++) {
		const float *f = v + (size_t)k * (size_t)(c * h * w);
		float low = f[0], high = f[0];

		for (int i = 1; i < c * h * w; i++) {
			low = fminf(low, f[i]);
			high = fmaxf(high, f[i]);
		}
		for (int i = 0; i < h * w * 3; i++) {
			const float value = f[(c >= 3 ? i % 3 : 0) * h * w + i / 3];

			ct_image_grid_at(&g, k, i / 3 % w, i / 3 / w)[i % 3] =
				(uint8_t)(high > low && isfinite(value) && isfinite(high - low)
						  ? 255 * (value - low) / (high - low)
						  : 128);
		}
	}
	enum ct_status st = ct_png_encode(g.image.pixels, g.image.w, g.image.h, png);
	ct_image_grid_release(&g);
	return st == CT_OK ? ct_str_status(png) : st;
}
