/* `ctrain data stats`: sizes, class counts, colors, damage and duplicates of the images of data sets. */
#ifndef CT_TRAINER_TOOLS_INIT_STATS_H
#define CT_TRAINER_TOOLS_INIT_STATS_H

#include "base/json.h"
#include "trainer/tools/init/survey.h"

enum { CT_STATS_SETS = 2 };

struct ct_stats_set {
	const char *name; /* "train" or "val" */
	const ct_dataset *data;
	struct ct_survey survey;
};

/* Images with the same content. A group has at least two images. */
struct ct_stats_image {
	int set;
	uint32_t image; /* index in survey.images */
};
struct ct_duplicates {
	struct ct_stats_image *images; /* [n], grouped; within a group sorted by set and image */
	uint32_t *first;               /* [n_groups + 1] index of the first image of each group */
	uint32_t n, n_groups;
	uint32_t n_across; /* images of the second set that are also in the first set */
	uint32_t n_labels; /* groups whose images have different labels */
};

/* Finds the duplicates in n surveys. *out is released by the caller on success. */
enum ct_status ct_duplicates_find(const struct ct_stats_set *sets, int n, struct ct_duplicates *out) CT_MUST_CHECK;
void ct_duplicates_release(struct ct_duplicates *d);

/* Appends the statistics as text, or returns them as JSON, which the caller owns (NULL: out of memory). */
enum ct_status ct_stats_text(const struct ct_stats_set *sets, int n, const struct ct_duplicates *d,
			     struct ct_str *out) CT_MUST_CHECK;
enum ct_status ct_stats_json(const struct ct_stats_set *sets, int n, const struct ct_duplicates *d,
			     ct_json **out) CT_MUST_CHECK;

#endif
