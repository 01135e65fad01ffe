/* Converts a sample to the uint8 [h,w,c] image of a batch: chooses a crop box, decodes only this box, resizes it and
 * augments the result. Random numbers are keyed by (seed, epoch, sample), so results do not depend on ranks, threads or
 * order.
 *
 *   encoded samples (shards, imagefolder): random resized crop or center crop, then ct_augment
 *   raw samples (CIFAR, IDX): ct_augment at the sample's own size, or resized like encoded ones if a crop is set */
#ifndef CT_DATA_TRANSFORM_TRANSFORM_H
#define CT_DATA_TRANSFORM_TRANSFORM_H

#include "data/dataset.h"
#include "data/image/image.h"
#include "data/transform/augment.h"

enum ct_crop {
	CT_CROP_NONE,   /* raw samples unchanged */
	CT_CROP_RANDOM, /* RandomResizedCrop (Szegedy et al. 2015) with torchvision's sampling rule */
	CT_CROP_CENTER  /* resize the short side to `resize`, then take the center */
};

struct ct_transform {
	int h, w; /* size of the result; 0: keep the size of the sample (raw samples only) */
	enum ct_crop crop;
	float area_min, area_max;   /* random crop: fraction of the area; 0,0: 0.08..1 */
	float ratio_min, ratio_max; /* random crop: width / height; 0,0: 3/4..4/3 */
	int resize;                 /* center crop: short side before the crop; 0: h * 256 / 224 */
	struct ct_image_opts image;
	struct ct_augment augment;
};

/* Fails with CT_CONFIG if a value is invalid; the message names the value. */
enum ct_status ct_transform_check(const struct ct_transform *t, const struct ct_dataset_info *info) CT_MUST_CHECK;

/* Returns NULL if the result can be described by a struct ct_image_view, from which a device computes the pixels;
 * otherwise the reason why not, as part of a sentence ("the images are compressed"). */
const char *ct_transform_why_not_described(const struct ct_transform *t, const struct ct_dataset_info *info);

/* Total times in nanoseconds. Only some of the raw samples that keep their size are timed; the total is extrapolated
 * from them. A flip during a resize counts as resize time. images: number of usable images. */
struct ct_transform_times {
	int64_t read_ns, decode_ns, resize_ns, distort_ns;
	uint64_t images, encoded_bytes, decoded_pixels, warnings;
};

/* Decoder, resizer and scratch memory of one thread. Borrows the data set. */
typedef struct ct_transformer ct_transformer;
enum ct_status ct_transformer_create(const struct ct_transform *t, const ct_dataset *d,
				     ct_transformer **out) CT_MUST_CHECK;
void ct_transformer_destroy(ct_transformer *t);
/* Changes the output size (progressive resizing). */
void ct_transformer_resize(ct_transformer *t, int h, int w);
/* Reads, decodes and transforms sample i into x [h,w,c]. Fails with CT_DATA and the reason if the sample is
 * unreadable; ct_dataset_describe returns its name. Other errors are not specific to the sample. */
enum ct_status ct_transformer_run(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i, uint8_t *x,
				  int32_t *label) CT_MUST_CHECK;
/* Reads sample i and decodes only the box that ct_transformer_run would decode. Benchmarks use this to measure an upper
 * bound of the loading speed. */
enum ct_status ct_transformer_decode(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i) CT_MUST_CHECK;
/* Decodes sample i completely, for `ctrain data check`. */
enum ct_status ct_transformer_verify(ct_transformer *t, uint32_t i, struct ct_image_header *header) CT_MUST_CHECK;
const char *ct_transformer_warning(const ct_transformer *t); /* warning about the last sample, or NULL */
const struct ct_transform_times *ct_transformer_times(const ct_transformer *t);

#endif
