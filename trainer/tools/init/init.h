/* `ctrain init`: looks at a directory of images and writes a configuration for it. */
#ifndef CT_TRAINER_TOOLS_INIT_INIT_H
#define CT_TRAINER_TOOLS_INIT_INIT_H

#include "base/mem.h"
#include "trainer/tools/init/image_layout.h"
#include "trainer/tools/init/recipe.h"
#include "trainer/tools/init/survey.h"

struct ct_init_opts {
	const char *dir, *labels; /* as for ct_layout_find */
	const char *out;          /* config to write; NULL: NAME.yaml in the current directory, after the name of dir */
	bool force;               /* replace an existing file */
};

/* Prints what was found and chosen, and the next commands, to standard output. Fails with CT_USAGE if the file exists.
 */
enum ct_status ct_init_run(const struct ct_init_opts *o) CT_MUST_CHECK;

struct ct_init_facts {
	struct ct_layout layout;
	struct ct_survey survey;    /* of the training directory */
	uint32_t n, n_val;          /* images in the training and in the evaluation directory */
	double width[3], height[3]; /* minimum, median, maximum */
	double short_side;          /* median */
	const char *largest,
		*smallest; /* the classes with the most and the fewest images; borrowed from the data set */
	uint32_t n_largest, n_smallest;
	bool gpu;
	uint64_t memory_bytes;
};

/* Appends the configuration as commented YAML. `name` is the name of the file, without a directory. */
void ct_init_write(const struct ct_init_facts *f, const struct ct_recipe *r, const char *name, struct ct_str *out);

#endif
