/* Rules of thumb that choose a model, an image size and training parameters for a directory of images.
 * docs/OWN_IMAGES.md describes them. */
#ifndef CT_TRAINER_TOOLS_INIT_RECIPE_H
#define CT_TRAINER_TOOLS_INIT_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

struct ct_recipe_facts {
	uint32_t n;            /* images from which training data is taken */
	double short_side;     /* median, in pixels */
	bool has_val;          /* there are separate evaluation images */
	bool gpu;              /* ctrain can use a GPU of this host */
	uint64_t memory_bytes; /* memory of the device; 0: unknown */
};

struct ct_recipe {
	double val_fraction; /* 0: there are separate evaluation images */
	int size;            /* width and height of training images */
	const char *model;
	bool small;      /* images of at most 32 pixels, which are shifted instead of cropped */
	bool few_images; /* fine-tuning is likely to be much better than training from scratch */
	uint32_t batch;
	bool less_memory; /* the batch is smaller than usual because of the memory */
	double lr;
	int epochs, warmup_epochs;
};

struct ct_recipe ct_recipe_choose(const struct ct_recipe_facts *f);

#endif
