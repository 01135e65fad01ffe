/* Decodes every sample of a data set on several threads and lists all problems, for `ctrain data check`. */
#ifndef CT_TRAINER_TOOLS_DATASET_DATA_CHECK_H
#define CT_TRAINER_TOOLS_DATASET_DATA_CHECK_H

#include "base/mem.h"
#include "data/transform/transform.h"

enum ct_finding_kind {
	CT_FINDING_DAMAGED,  /* a shard that cannot be used at all */
	CT_FINDING_BAD,      /* cannot be read or decoded; training would replace it with another sample */
	CT_FINDING_LEFT_OUT, /* skipped, because it is not in the index */
	CT_FINDING_WARNING,  /* usable, but not completely valid */
	CT_FINDING_KINDS
};
const char *ct_data_finding_name(enum ct_finding_kind kind); /* "damaged", "bad", "left-out", "warning" */

struct ct_data_finding {
	const char *set; /* borrowed; "train", for example */
	enum ct_finding_kind kind;
	int64_t sample; /* index of the sample, or -1 if it is not in the index of its data set */
	char *where, *key, *reason;
	char tag[CT_ERROR_TAG_MAX]; /* the kind of the reason, such as "jpeg-truncated", or "other" */
};

#define CT_MAX_TAGS 64 /* maximum over all kinds together; further tags are counted as "other" */

struct ct_data_finding_tag {
	enum ct_finding_kind kind;
	char tag[CT_ERROR_TAG_MAX];
	size_t n;
};

struct ct_data_findings {
	struct ct_data_finding
		*v; /* for each set: damaged shards, then unreadable samples in order, then skipped samples */
	size_t n, cap;
	size_t counts[CT_FINDING_KINDS];
	struct ct_data_finding_tag tags[CT_MAX_TAGS];
	size_t n_tags; /* sorted by kind, then by decreasing n, after ct_data_check */
};
/* A zero-initialized struct is empty. */
void ct_data_findings_release(struct ct_data_findings *f);
/* Appends one line per finding: either JSON objects, or tab-separated columns with a header line. */
enum ct_status ct_data_findings_write(const struct ct_data_findings *f, bool json, struct ct_str *out) CT_MUST_CHECK;

/* Adds a damaged shard, with the reason that was passed to ct_dataset_spec.on_damaged. set is borrowed until the
 * findings are released. */
enum ct_status ct_data_findings_add_damaged(struct ct_data_findings *f, const char *set,
					    const struct ct_refusal *why) CT_MUST_CHECK;

struct ct_data_check {
	const char *set; /* borrowed until the findings are released */
	const ct_dataset *data;
	struct ct_image_opts image;
	int threads;
	/* Reports the progress. Called by only one thread at a time. */
	void (*progress)(void *user, uint64_t done, uint64_t total, size_t bad);
	void *user;
};
/* Appends the findings to `out`. An invalid sample is a finding; it does not make this function fail. */
enum ct_status ct_data_check(const struct ct_data_check *c, struct ct_data_findings *out) CT_MUST_CHECK;

/* If the classes are those of ImageNet (ILSVRC 2012), writes how many of the 1,000 are missing or, if none is, how the
 * number of samples compares with that of the complete training or validation set; otherwise "". `set` is "train",
 * "val", or a path. */
void ct_imagenet_note(const ct_dataset *d, const char *set, char *text, size_t len);

#endif
