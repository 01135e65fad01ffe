/* The rules depend only on the facts, so the same images give the same config on the same device. Small images get a
 * small model, few images a larger part for evaluation and more epochs; the learning rate is proportional to the batch
 * size, with 0.1 for 128 images. The batch is halved until its estimated memory is at most half of that of the
 * device. */
#include "trainer/tools/init/recipe.h"

#define FEW_IMAGES 5000
#define MANY_IMAGES 100000
#define MAX_EPOCHS 100
#define MIN_EPOCHS 20
#define TOTAL_IMAGES 1000000 /* that a run processes, within these limits of epochs */

static double val_fraction(uint32_t n)
{
	return n < FEW_IMAGES ? 0.2 : n < MANY_IMAGES ? 0.1 : 0.05;
}

static int choose_size(const struct ct_recipe_facts *f)
{
	if (f->short_side <= 40)
		return 32;
	if (f->short_side < 96)
		return 64;
	/* 224 x 224 pixels take about three times as long as 128 x 128. */
	return f->short_side < 200 || !f->gpu ? 128 : 224;
}

/* Returns the memory of one training image in KiB, from the "memory" line of `ctrain plan`, rounded up. */
static double image_kib(const struct ct_recipe *r)
{
	const double per_pixel = r->small ? 1.4 : 1.0;

	return per_pixel * r->size * r->size;
}

static uint32_t choose_batch(uint32_t n)
{
	return n < 1000 ? 16 : n < FEW_IMAGES ? 32 : n < 20000 ? 64 : 128;
}

struct ct_recipe ct_recipe_choose(const struct ct_recipe_facts *f)
{
	struct ct_recipe r = {.val_fraction = f->has_val ? 0 : val_fraction(f->n), .size = choose_size(f)};
	const double n_train = f->n * (1 - r.val_fraction);
	const double epochs = TOTAL_IMAGES / (n_train > 1 ? n_train : 1);

	r.small = r.size <= 32;
	r.few_images = f->n < FEW_IMAGES;
	r.model = r.small ? "resnet20" : r.size == 224 && f->n >= MANY_IMAGES ? "resnet50" : "resnet18";
	r.batch = choose_batch(f->n);
	while (f->memory_bytes && r.batch > 8 && r.batch * image_kib(&r) * 1024 > 0.5 * (double)f->memory_bytes) {
		r.batch /= 2;
		r.less_memory = true;
	}
	r.lr = 0.1 * r.batch / 128;
	r.epochs = epochs < MIN_EPOCHS ? MIN_EPOCHS : epochs > MAX_EPOCHS ? MAX_EPOCHS : (int)epochs;
	r.warmup_epochs = r.epochs / 20;
	return r;
}
