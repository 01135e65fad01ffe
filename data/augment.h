/* Augmentation of one uint8 HWC image, keyed by (seed, epoch, sample): independent of ranks, threads and order. */
#ifndef CT_DATA_AUGMENT_H
#define CT_DATA_AUGMENT_H

#include <stdint.h>

#include "base/status.h"

struct ct_augment {
	int crop_padding;     /* pad by so many zero pixels on each side, crop back at a random place; 0 off */
	bool flip;            /* left-right with probability 1/2 */
	float degrees;        /* rotation uniform in +-degrees */
	float translate;      /* shift uniform in +- this fraction of the size, both axes */
	float scale_min, scale_max; /* zoom uniform; 1,1 (or 0,0) off */
	float shear;          /* degrees, horizontal */
};
bool ct_augment_active(const struct ct_augment *a);
/* CT_CONFIG naming the value that is out of range. The functions here may be called only after this said yes. */
enum ct_status ct_augment_check(const struct ct_augment *a) CT_MUST_CHECK;
/* dst and src [h,w,c], distinct; scratch of the same size. Order: affine (bilinear, zeros outside), crop, flip. */
void ct_augment_apply(const struct ct_augment *a, uint64_t seed, uint32_t epoch, uint32_t sample, int h, int w, int c,
		      const uint8_t *src, uint8_t *dst, uint8_t *scratch);

#endif
