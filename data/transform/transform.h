/* From a sample to the uint8 [h,w,c] image of a batch: choose a window, decode only that, resize, distort. Everything
 * random is keyed by (seed, epoch, sample), independent of ranks, threads and order.
 *
 *   encoded samples (shards, imagefolder): random resized crop or centre crop, then ct_augment
 *   raw samples (CIFAR, IDX): ct_augment at the sample's own size, or resized like encoded ones when crop says so */
#ifndef CT_DATA_TRANSFORM_TRANSFORM_H
#define CT_DATA_TRANSFORM_TRANSFORM_H

#include "data/dataset.h"
#include "data/image/image.h"
#include "data/transform/augment.h"

enum ct_crop {
	CT_CROP_NONE,   /* raw samples as they are */
	CT_CROP_RANDOM, /* RandomResizedCrop (Szegedy et al. 2015), torchvision's sampling rule */
	CT_CROP_CENTER  /* short side to `resize`, then the middle */
};

struct ct_transform {
	int h, w; /* of the result; 0: the sample's own (raw samples only) */
	enum ct_crop crop;
	float area_min, area_max;   /* random: share of the area; 0,0: 0.08..1 */
	float ratio_min, ratio_max; /* random: width / height; 0,0: 3/4..4/3 */
	int resize;                 /* centre: short side before the cut; 0: h * 256 / 224 */
	struct ct_image_opts image;
	struct ct_augment augment;
};

/* CT_CONFIG naming the value that cannot be. */
enum ct_status ct_transform_check(const struct ct_transform *t, const struct ct_dataset_info *info) CT_MUST_CHECK;

/* Nanoseconds, summed. Raw samples that keep their size are timed by sampling one in many. A flip in a resize is the
 * resize's; images: those that were good. */
struct ct_transform_times {
	int64_t read_ns, decode_ns, resize_ns, distort_ns;
	uint64_t images, encoded_bytes, decoded_pixels, warnings;
};

/* One thread's decoder, resizer and scratch memory. Borrows the data set. */
typedef struct ct_transformer ct_transformer;
enum ct_status ct_transformer_create(const struct ct_transform *t, const ct_dataset *d,
				     ct_transformer **out) CT_MUST_CHECK;
void ct_transformer_destroy(ct_transformer *t);
/* Another output size from now on (progressive resizing). */
void ct_transformer_resize(ct_transformer *t, int h, int w);
/* Reads, decodes and transforms sample i into x [h,w,c]. CT_DATA: the sample is bad, and why (without its name: see
 * ct_dataset_describe); other errors are not the sample's fault. */
enum ct_status ct_transformer_run(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i, uint8_t *x,
				  int32_t *label) CT_MUST_CHECK;
/* Reads sample i and decodes the window that ct_transformer_run would, no more: the limit that a bench compares
 * with. */
enum ct_status ct_transformer_decode(ct_transformer *t, uint64_t seed, uint32_t epoch, uint32_t i) CT_MUST_CHECK;
/* Decodes all of sample i: for `ctrain data check`. */
enum ct_status ct_transformer_verify(ct_transformer *t, uint32_t i, struct ct_image_header *header) CT_MUST_CHECK;
const char *ct_transformer_warning(const ct_transformer *t); /* of the last sample, or NULL */
const struct ct_transform_times *ct_transformer_times(const ct_transformer *t);

#endif
