/* Only the box that the crop needs is decoded, and one resize makes the result from it. A flip is done by the resize if
 * nothing else moves pixels. The order of the steps and the keys of the random numbers are the same in all paths, so
 * that a sample has the same pixels wherever it is loaded. A transformer belongs to one thread; its buffers grow to the
 * largest sample and are then reused. A sample that cannot be read or decoded gives CT_DATA; any other status means
 * that more than this sample is wrong. */
#include "data/transform/transform.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "data/transform/augment_impl.h"
#include "data/transform/resize.h"

#define MAX_SIDE 8192
#define TRIES 10                /* attempts of the random crop before it uses a center crop, as in torchvision */
#define RAW_TIMED 64            /* only every 64th raw sample is timed, because reading the clock takes about as long */
#define RESERVE_MAX (16u << 20) /* limit on the compressed bytes that are allocated before the first sample */

struct ct_transformer {
	struct ct_transform opts;
	const ct_dataset *data;
	const struct ct_dataset_info *info;
	bool encoded, resizes;
	ct_image_decoder *decoder;
	ct_resizer *resizer;
	/* Buffers for compressed bytes, for a raw sample and its RGBX box, for the resized image before augmentation,
	 * and scratch memory for augmentation. */
	struct ct_bytes bytes, raw, rgbx, image, scratch;
	const char *warning;
	struct ct_transform_times times;
};

/* Parameters of one sample. */
struct request {
	uint64_t seed;
	uint32_t epoch, sample;
	uint8_t *x;
	int32_t *label;
};

static enum ct_status check_crop(const struct ct_transform *t)
{
	if (t->crop == CT_CROP_RANDOM && t->area_max != 0 &&
	    !(t->area_min > 0 && t->area_min <= t->area_max && t->area_max <= 1))
		return CT_FAIL(CT_CONFIG, "the random crop covers %g to %g of the area; both must be in 0..1",
			       (double)t->area_min, (double)t->area_max);
	if (t->crop == CT_CROP_RANDOM && t->ratio_max != 0 &&
	    !(t->ratio_min >= 0.01f && t->ratio_min <= t->ratio_max && t->ratio_max <= 100))
		return CT_FAIL(CT_CONFIG, "the random crop has aspect ratios from %g to %g, which must be in 0.01..100",
			       (double)t->ratio_min, (double)t->ratio_max);
	if (t->crop == CT_CROP_CENTER && t->resize && (t->resize < t->h || t->resize < t->w || t->resize > MAX_SIDE)) {
		CT_FAIL(CT_CONFIG, "cannot take a center crop of %d x %d from images resized to a short side of %d",
			t->w, t->h, t->resize);
		return ct_error_hint("the short side must be at least as long as the sides of the crop, and at most %d",
				     MAX_SIDE);
	}
	return CT_OK;
}

static enum ct_status check_color(const struct ct_augment *a, const struct ct_dataset_info *info)
{
	if ((ct__augment_is_photometric(a) && info->c != 1 && info->c != 3) ||
	    (ct__augment_needs_color(a) && info->c != 3))
		return CT_FAIL(CT_CONFIG,
			       "the images of %s have %d channels, which is too %s for this color augmentation",
			       info->name, info->c, info->c < 3 ? "few" : "many");
	return CT_OK;
}

enum ct_status ct_transform_check(const struct ct_transform *t, const struct ct_dataset_info *info)
{
	bool sized = t->h || t->w;

	CT_TRY(ct_augment_check(&t->augment));
	if (info->kind == CT_SAMPLE_F32) {
		if (ct_augment_active(&t->augment) || t->crop != CT_CROP_NONE)
			return CT_FAIL(CT_CONFIG, "data set %s has no images to augment", info->name);
		return CT_OK;
	}
	if (sized && (t->h < 1 || t->w < 1 || t->h > MAX_SIDE || t->w > MAX_SIDE))
		return CT_FAIL(CT_CONFIG, "image size %d x %d: the sides must be in 1..%d", t->w, t->h, MAX_SIDE);
	if (t->crop == CT_CROP_NONE && info->kind == CT_SAMPLE_ENCODED)
		return CT_FAIL(CT_CONFIG, "the images of %s have different sizes: use a random or a center crop",
			       info->name);
	if (t->crop == CT_CROP_NONE && sized && (t->h != info->h || t->w != info->w))
		return CT_FAIL(CT_CONFIG,
			       "the images of %s are %d x %d: use a random or a center crop to resize them to %d x %d",
			       info->name, info->w, info->h, t->w, t->h);
	if (t->crop != CT_CROP_NONE && !sized && info->kind == CT_SAMPLE_ENCODED)
		return CT_FAIL(CT_CONFIG, "the images of %s have different sizes: set the size of the result",
			       info->name);
	if (t->crop != CT_CROP_NONE && info->kind == CT_SAMPLE_U8_HWC && info->c != 1 && info->c != 3)
		return CT_FAIL(CT_CONFIG,
			       "the images of %s have %d channels: only images with 1 or 3 channels can be resized",
			       info->name, info->c);
	CT_TRY(check_crop(t));
	return check_color(&t->augment, info);
}

const char *ct_transform_why_not_described(const struct ct_transform *t, const struct ct_dataset_info *info)
{
	if (info->kind == CT_SAMPLE_ENCODED)
		return "the images are compressed";
	if (info->kind != CT_SAMPLE_U8_HWC || info->n_targets)
		return "the samples are not images with class labels";
	if (t->crop != CT_CROP_NONE || (info->h > INT16_MAX || info->w > INT16_MAX))
		return "the images are resized, or too large";
	return ct_augment_describable(&t->augment)
		       ? NULL
		       : "only crops, flips and erasing can be computed there, no other augmentations";
}

static enum ct_status build(ct_transformer *t)
{
	const struct ct_dataset_info *info = t->info;

	if (t->resizes)
		CT_TRY(ct_resizer_create(&t->resizer));
	if (t->encoded) {
		CT_TRY(ct_image_decoder_create(&t->opts.image, &t->decoder));
		CT_TRY(ct_bytes_reserve(&t->bytes,
					info->max_encoded_bytes < RESERVE_MAX ? info->max_encoded_bytes : RESERVE_MAX));
	} else {
		CT_TRY(ct_bytes_reserve(&t->raw, info->sample_bytes));
		if (t->resizes)
			CT_TRY(ct_bytes_reserve(&t->rgbx, (size_t)info->h * (size_t)info->w * 4));
	}
	ct_transformer_resize(t, t->opts.h, t->opts.w);
	CT_TRY(ct_bytes_reserve(&t->image, (size_t)t->opts.h * (size_t)t->opts.w * 4));
	return ct_bytes_reserve(&t->scratch, (size_t)t->opts.h * (size_t)t->opts.w * 4);
}

enum ct_status ct_transformer_create(const struct ct_transform *opts, const ct_dataset *d, ct_transformer **out)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);
	enum ct_status st;
	ct_transformer *t;

	CT_TRY(ct_transform_check(opts, info));
	CT_TRY_ALLOC(t = CT_NEW(ct_transformer));
	t->opts = *opts;
	t->data = d;
	t->info = info;
	t->encoded = info->kind == CT_SAMPLE_ENCODED;
	t->resizes = opts->crop != CT_CROP_NONE;
	if (opts->area_max == 0) {
		t->opts.area_min = 0.08f;
		t->opts.area_max = 1;
	}
	if (opts->ratio_max == 0) {
		t->opts.ratio_min = 3.0f / 4;
		t->opts.ratio_max = 4.0f / 3;
	}
	st = build(t);
	if (st < 0) {
		ct_transformer_destroy(t);
		return st;
	}
	*out = t;
	return CT_OK;
}

void ct_transformer_destroy(ct_transformer *t)
{
	if (!t)
		return;
	ct_image_decoder_destroy(t->decoder);
	ct_resizer_destroy(t->resizer);
	ct_free(t->bytes.data);
	ct_free(t->raw.data);
	ct_free(t->rgbx.data);
	ct_free(t->image.data);
	ct_free(t->scratch.data);
	ct_free(t);
}

void ct_transformer_resize(ct_transformer *t, int h, int w)
{
	t->opts.h = h ? h : t->info->h;
	t->opts.w = w ? w : t->info->w;
}

/* RandomResizedCrop.get_params of torchvision. */
static struct ct_box random_box(const struct ct_transform *o, const struct request *q, int w, int h)
{
	double low = log((double)o->ratio_min), high = log((double)o->ratio_max), ratio = (double)w / h;
	struct ct_box b = {0, 0, w, h};
	struct ct_rng r;

	ct_rng_init(&r, q->seed, CT_RNG_CROP, q->epoch, q->sample);
	for (int i = 0; i < TRIES; i++) {
		double area = (double)o->area_min + (double)(o->area_max - o->area_min) * (double)ct_rng_uniform(&r);
		double shape = exp(low + (high - low) * (double)ct_rng_uniform(&r));
		double bw = rint(sqrt(area * w * h * shape)), bh = rint(sqrt(area * w * h / shape));

		if (bw < 1 || bw > w || bh < 1 || bh > h)
			continue;
		b.w = (int)bw;
		b.h = (int)bh;
		b.y = (int)ct_rng_below(&r, (uint32_t)(h - b.h + 1));
		b.x = (int)ct_rng_below(&r, (uint32_t)(w - b.w + 1));
		return b;
	}
	if (ratio < (double)o->ratio_min)
		b.h = (int)ct_clamp(rint(w / (double)o->ratio_min), 1, h);
	else if (ratio > (double)o->ratio_max)
		b.w = (int)ct_clamp(rint(h * (double)o->ratio_max), 1, w);
	b.x = (w - b.w) / 2;
	b.y = (h - b.h) / 2;
	return b;
}

static void make_request(const ct_transformer *t, const struct request *q, int w, int h, struct ct_resize *req)
{
	const int side = t->opts.h > t->opts.w ? t->opts.h : t->opts.w;

	*req = (struct ct_resize){.out_w = t->opts.w, .out_h = t->opts.h};
	if (t->opts.crop == CT_CROP_RANDOM) {
		req->limits = random_box(&t->opts, q, w, h);
		req->x = req->limits.x;
		req->y = req->limits.y;
		req->w = req->limits.w;
		req->h = req->limits.h;
	} else {
		ct_resize_center(req, w, h, t->opts.resize ? t->opts.resize : side * 256 / 224);
	}
}

static void lap(int64_t *since, int64_t *sum)
{
	int64_t now = ct_now_ns();

	*sum += now - *since;
	*since = now;
}

/* The box of a raw sample in the format of the resizer. */
static enum ct_status view_raw(ct_transformer *t, struct ct_box window, struct ct_pixels *out)
{
	int c = t->info->c;
	uint8_t *p;

	CT_TRY(ct_bytes_reserve(&t->rgbx, (size_t)window.w * (size_t)window.h * 4));
	p = t->rgbx.data;
	for (int y = window.y; y < window.y + window.h; y++) {
		const uint8_t *x = t->raw.data + ((size_t)y * (size_t)t->info->w + (size_t)window.x) * (size_t)c;

		for (int i = 0; i < window.w; i++, p += 4, x += c) {
			p[0] = x[0];
			p[1] = x[c == 3 ? 1 : 0];
			p[2] = x[c == 3 ? 2 : 0];
		}
	}
	*out = (struct ct_pixels){.rgbx = t->rgbx.data, .pitch = (size_t)window.w * 4, .box = window, .scale = 1};
	return CT_OK;
}

/* Decodes only the pixels for req. The size of the sample is already known. */
static enum ct_status decode(ct_transformer *t, const struct request *q, int64_t *since, struct ct_resize *req,
			     struct ct_pixels *pixels)
{
	struct ct_image_header header;
	struct ct_box window;

	if (!t->encoded) {
		CT_TRY(ct_dataset_read(t->data, q->sample, t->raw.data, q->label, NULL));
		lap(since, &t->times.read_ns);
		make_request(t, q, t->info->w, t->info->h, req);
		return view_raw(t, ct_resize_window(req), pixels);
	}
	CT_TRY(ct_dataset_fetch(t->data, q->sample, &t->bytes, q->label));
	lap(since, &t->times.read_ns);
	t->times.encoded_bytes += t->bytes.n;
	CT_TRY(ct_image_open(t->decoder, t->bytes.data, t->bytes.n, &header));
	make_request(t, q, header.w, header.h, req);
	window = ct_resize_window(req);
	CT_TRY(ct_image_decode(t->decoder, window, req->out_w, req->out_h, pixels));
	t->times.decoded_pixels += (uint64_t)window.w * (uint64_t)window.h;
	t->warning = ct_image_warning(t->decoder);
	t->times.warnings += t->warning != NULL;
	return CT_OK;
}

/* dst [h,w,c] from a resize to [h,w,3]. */
static enum ct_status resize_into(ct_transformer *t, const struct ct_resize *req, const struct ct_pixels *pixels,
				  uint8_t *dst)
{
	size_t n = (size_t)req->out_h * (size_t)req->out_w;

	if (t->encoded || t->info->c == 3)
		return ct_resize_run(t->resizer, req, pixels, dst);
	CT_TRY(ct_bytes_reserve(&t->scratch, 3 * n));
	CT_TRY(ct_resize_run(t->resizer, req, pixels, t->scratch.data));
	for (size_t i = 0; i < n; i++)
		dst[i] = t->scratch.data[3 * i];
	return CT_OK;
}

static enum ct_status run_resized(ct_transformer *t, const struct request *q)
{
	int h = t->opts.h, w = t->opts.w, c = t->encoded ? 3 : t->info->c;
	const struct ct_augment *a = &t->opts.augment;
	int64_t since = ct_now_ns();
	struct ct_pixels pixels;
	struct ct_resize req;
	bool moves;

	CT_TRY(decode(t, q, &since, &req, &pixels));
	lap(&since, &t->times.decode_ns);
	/* If no other step moves pixels, the resize also flips the image, at no cost. */
	moves = ct__augment_moves(a, false);
	req.flip = !moves && ct__augment_flips(a, q->seed, q->epoch, q->sample);
	CT_TRY(ct_bytes_reserve(&t->image, (size_t)h * (size_t)w * (size_t)c));
	CT_TRY(ct_bytes_reserve(&t->scratch, (size_t)h * (size_t)w * (size_t)c));
	CT_TRY(resize_into(t, &req, &pixels, moves ? t->image.data : q->x));
	lap(&since, &t->times.resize_ns);
	if (moves)
		ct_augment_apply(a, q->seed, q->epoch, q->sample, h, w, c, t->image.data, q->x, t->scratch.data);
	else if (ct__augment_is_photometric(a))
		ct__augment_photometric(a, q->seed, q->epoch, q->sample, &(struct ct_raster){q->x, h, w, c},
					t->scratch.data);
	else
		return CT_OK;
	lap(&since, &t->times.distort_ns);
	return CT_OK;
}

static enum ct_status run_raw(ct_transformer *t, const struct request *q)
{
	const struct ct_dataset_info *info = t->info;
	bool augments = ct_augment_active(&t->opts.augment), timed = t->times.images % RAW_TIMED == 0;
	int64_t since = timed ? ct_now_ns() : 0, ns = 0;

	CT_TRY(ct_dataset_read(t->data, q->sample, augments ? t->raw.data : q->x, q->label, NULL));
	if (timed) {
		lap(&since, &ns);
		t->times.read_ns += ns * RAW_TIMED;
	}
	if (!augments)
		return CT_OK;
	ct_augment_apply(&t->opts.augment, q->seed, q->epoch, q->sample, info->h, info->w, info->c, t->raw.data, q->x,
			 t->scratch.data);
	if (timed) {
		ns = 0;
		lap(&since, &ns);
		t->times.distort_ns += ns * RAW_TIMED;
	}
	return CT_OK;
}

enum ct_status ct_transformer_run(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i, uint8_t *x,
				  int32_t *label)
{
	struct request q = {seed, epoch, i, x, label};

	t->warning = NULL;
	CT_TRY(t->resizes ? run_resized(t, &q) : run_raw(t, &q));
	t->times.images++;
	return CT_OK;
}

enum ct_status ct_transformer_decode(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i)
{
	struct request q = {.seed = seed, .epoch = epoch, .sample = i};
	int64_t since = ct_now_ns();
	struct ct_pixels pixels;
	struct ct_resize req;

	t->warning = NULL;
	CT_TRY(decode(t, &q, &since, &req, &pixels));
	lap(&since, &t->times.decode_ns);
	t->times.images++;
	return CT_OK;
}

enum ct_status ct_transformer_verify(ct_transformer *t, uint32_t i, struct ct_image_header *header)
{
	struct ct_pixels pixels;
	int64_t since = ct_now_ns();

	t->warning = NULL;
	*header = (struct ct_image_header){.w = t->info->w, .h = t->info->h, .components = t->info->c};
	if (!t->encoded) {
		CT_TRY(ct_dataset_read(t->data, i, t->raw.data, NULL, NULL));
		lap(&since, &t->times.read_ns);
	} else {
		CT_TRY(ct_dataset_fetch(t->data, i, &t->bytes, NULL));
		lap(&since, &t->times.read_ns);
		t->times.encoded_bytes += t->bytes.n;
		CT_TRY(ct_image_open(t->decoder, t->bytes.data, t->bytes.n, header));
		CT_TRY(ct_image_decode(t->decoder, (struct ct_box){0, 0, header->w, header->h}, 0, 0, &pixels));
		lap(&since, &t->times.decode_ns);
		t->times.decoded_pixels += (uint64_t)header->w * (uint64_t)header->h;
		t->warning = ct_image_warning(t->decoder);
		t->times.warnings += t->warning != NULL;
	}
	t->times.images++;
	return CT_OK;
}

const char *ct_transformer_warning(const ct_transformer *t)
{
	return t->warning;
}

const struct ct_transform_times *ct_transformer_times(const ct_transformer *t)
{
	return &t->times;
}
