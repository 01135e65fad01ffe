/* Threads take samples one by one and verify them, that is, decode them completely without resizing. Findings of all
 * threads go to one list under a lock, and are sorted at the end, so the output does not depend on the threads. A
 * sample that cannot be read or decoded is a finding; any other error ends the check.
 *
 * Findings are counted by the tags of their reasons, such as "jpeg-truncated", which the library that refuses a sample
 * or a shard states separately. */
#include "trainer/tools/dataset/data_check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/thread.h"
#include "base/work_queue.h"

#define IMAGENET_CLASSES 1000 /* of ILSVRC 2012 */
#define IMAGENET_TRAIN 1281167
#define IMAGENET_VAL 50000
#define TEXT 1024

static const char *const names[CT_FINDING_KINDS] = {"damaged", "bad", "left-out", "warning"};

struct check {
	const struct ct_data_check *opts;
	uint32_t n;
	pthread_mutex_t mutex; /* protects the members below */
	struct ct_data_findings *out;
	uint64_t done;
	size_t n_bad;
};

const char *ct_data_finding_name(enum ct_finding_kind kind)
{
	return names[kind];
}

void ct_data_findings_release(struct ct_data_findings *f)
{
	for (size_t i = 0; i < f->n; i++) {
		ct_free(f->v[i].where);
		ct_free(f->v[i].key);
		ct_free(f->v[i].reason);
	}
	ct_free(f->v);
	*f = (struct ct_data_findings){0};
}

static void count_tag(struct ct_data_findings *f, enum ct_finding_kind kind, const char *tag)
{
	struct ct_data_finding_tag *t = f->tags;

	while (t < f->tags + f->n_tags && (t->kind != kind || strcmp(t->tag, tag) != 0))
		t++;
	if (t == f->tags + f->n_tags && f->n_tags < CT_MAX_TAGS) {
		*t = (struct ct_data_finding_tag){.kind = kind};
		snprintf(t->tag, sizeof(t->tag), "%s", tag);
		f->n_tags++;
	}
	if (t < f->tags + CT_MAX_TAGS)
		t->n++;
}

static enum ct_status add(struct ct_data_findings *f, const struct ct_data_finding *like, const char *key,
			  const struct ct_refusal *why)
{
	struct ct_data_finding *v;

	CT_TRY_GROW(f->v, f->n, f->cap);
	v = &f->v[f->n++];
	*v = *like;
	v->where = ct_strdup(why->where);
	v->key = ct_strdup(key);
	v->reason = ct_strdup(why->reason);
	snprintf(v->tag, sizeof(v->tag), "%s", why->tag[0] ? why->tag : "other");
	f->counts[v->kind]++;
	count_tag(f, v->kind, v->tag);
	return v->where && v->key && v->reason ? CT_OK : CT_NOMEM;
}

static enum ct_status note(struct check *c, enum ct_finding_kind kind, uint32_t sample, const char *tag,
			   const char *reason)
{
	struct ct_data_finding like = {.set = c->opts->set, .kind = kind, .sample = sample};
	struct ct_refusal why;
	char key[TEXT];
	enum ct_status st;

	snprintf(why.tag, sizeof(why.tag), "%s", tag);
	snprintf(why.reason, sizeof(why.reason), "%s", reason);
	ct_dataset_describe(c->opts->data, sample, why.where, sizeof(why.where));
	ct_dataset_key(c->opts->data, sample, key, sizeof(key));
	pthread_mutex_lock(&c->mutex);
	st = add(c->out, &like, key, &why);
	c->n_bad += kind == CT_FINDING_BAD;
	pthread_mutex_unlock(&c->mutex);
	return st;
}

static enum ct_status check_one(struct check *c, ct_transformer *t, uint32_t i)
{
	struct ct_image_header header;
	enum ct_status st = ct_transformer_verify(t, i, &header);

	if (st == CT_DATA || st == CT_NOT_FOUND) {
		st = note(c, CT_FINDING_BAD, i, ct_error_tag(), ct_error_message());
		if (st == CT_OK)
			ct_error_clear();
		return st;
	}
	if (st < 0) {
		char where[TEXT];

		ct_dataset_describe(c->opts->data, i, where, sizeof(where));
		return ct_error_wrap("%s", where);
	}
	if (!ct_transformer_warning(t))
		return CT_OK;
	return note(c, CT_FINDING_WARNING, i, CT_IMAGE_WARNING_TAG, ct_transformer_warning(t));
}

static void count_one(struct check *c)
{
	pthread_mutex_lock(&c->mutex);
	c->done++;
	if (c->opts->progress)
		c->opts->progress(c->opts->user, c->done, c->n, c->n_bad);
	pthread_mutex_unlock(&c->mutex);
}

static enum ct_status check_some(ct_work_queue *q, void *arg)
{
	struct check *c = arg;
	bool encoded = ct_dataset_info(c->opts->data)->kind == CT_SAMPLE_ENCODED;
	/* Any size is sufficient, because nothing is resized. */
	struct ct_transform how = {.image = c->opts->image};
	ct_transformer *t = NULL;
	enum ct_status st;
	size_t i;

	if (encoded) {
		how.crop = CT_CROP_CENTER;
		how.h = how.w = how.resize = 1;
	}
	st = ct_transformer_create(&how, c->opts->data, &t);
	while (st == CT_OK && ct_work_next(q, &i)) {
		st = check_one(c, t, (uint32_t)i);
		count_one(c);
	}
	ct_transformer_destroy(t);
	return st;
}

enum ct_status ct_data_findings_add_damaged(struct ct_data_findings *f, const char *set, const struct ct_refusal *why)
{
	const struct ct_data_finding like = {.set = set, .kind = CT_FINDING_DAMAGED, .sample = -1};

	return add(f, &like, "", why);
}

static enum ct_status add_left_out(struct check *c, uint32_t i)
{
	const struct ct_data_finding like = {.set = c->opts->set, .kind = CT_FINDING_LEFT_OUT, .sample = -1};
	struct ct_refusal why;

	ct_dataset_skipped(c->opts->data, i, &why);
	return add(c->out, &like, "", &why);
}

static int by_count(const void *a, const void *b)
{
	const struct ct_data_finding_tag *x = a, *y = b;
	int c = (int)x->kind - (int)y->kind;

	if (c == 0)
		c = (x->n < y->n) - (x->n > y->n);
	return c ? c : strcmp(x->tag, y->tag);
}

static int by_sample(const void *a, const void *b)
{
	const struct ct_data_finding *x = a, *y = b;

	return (x->sample > y->sample) - (x->sample < y->sample);
}

enum ct_status ct_data_check(const struct ct_data_check *opts, struct ct_data_findings *out)
{
	const struct ct_dataset_info *info = ct_dataset_info(opts->data);
	struct check c = {.opts = opts, .n = info->n, .out = out, .mutex = PTHREAD_MUTEX_INITIALIZER};
	size_t before = out->n;
	enum ct_status st = ct_work_run(info->n, opts->threads > 0 ? opts->threads : ct_cpu_count(), "ctrain-check",
					check_some, &c);

	/* The threads add findings in arbitrary order. */
	if (st == CT_OK && out->n > before)
		qsort(out->v + before, out->n - before, sizeof(*out->v), by_sample);
	for (uint32_t i = 0; i < info->n_skipped && st == CT_OK; i++)
		st = add_left_out(&c, i);
	qsort(out->tags, out->n_tags, sizeof(*out->tags), by_count);
	pthread_mutex_destroy(&c.mutex);
	return st;
}

static enum ct_status write_json(const struct ct_data_finding *f, struct ct_str *out)
{
	ct_json *j = ct_json_object();
	enum ct_status st;

	ct_json_set_str(j, "set", f->set);
	ct_json_set_str(j, "kind", names[f->kind]);
	if (f->sample >= 0)
		ct_json_set_i64(j, "sample", f->sample);
	ct_json_set_str(j, "where", f->where);
	ct_json_set_str(j, "key", f->key);
	ct_json_set_str(j, "tag", f->tag);
	ct_json_set_str(j, "reason", f->reason);
	st = ct_json_dump(j, false, out);
	ct_json_destroy(j);
	ct_str_add(out, "\n");
	return st;
}

/* Escapes control bytes, because a tab in a reason would look like a column separator. */
static void write_column(const char *text, struct ct_str *out)
{
	ct_str_add_escaped(out, text, strlen(text), TEXT * 4);
}

static void write_tsv(const struct ct_data_finding *f, struct ct_str *out)
{
	ct_str_addf(out, "%s\t%s\t", f->set, names[f->kind]);
	if (f->sample >= 0)
		ct_str_addf(out, "%lld", (long long)f->sample);
	ct_str_add(out, "\t");
	write_column(f->where, out);
	ct_str_add(out, "\t");
	write_column(f->key, out);
	ct_str_addf(out, "\t%s\t", f->tag);
	write_column(f->reason, out);
	ct_str_add(out, "\n");
}

enum ct_status ct_data_findings_write(const struct ct_data_findings *f, bool json, struct ct_str *out)
{
	if (!json)
		ct_str_add(out, "set\tkind\tsample\twhere\tkey\ttag\treason\n");
	for (size_t i = 0; i < f->n; i++) {
		if (json)
			CT_TRY(write_json(&f->v[i], out));
		else
			write_tsv(&f->v[i], out);
	}
	return ct_str_status(out);
}

/* A few of the classes may be missing. */
static bool is_imagenet(const ct_dataset *d)
{
	const char *first = ct_dataset_class_name(d, 0);
	const int n = ct_dataset_info(d)->n_classes;

	return n > IMAGENET_CLASSES * 9 / 10 && n <= IMAGENET_CLASSES && first &&
	       (strcmp(first, "n01440764") == 0 || strncmp(first, "tench", 5) == 0);
}

/* "val", or a path whose last part begins with it, such as ILSVRC2012/val/ */
static bool is_val(const char *set)
{
	size_t n = strlen(set);

	while (n > 0 && set[n - 1] == '/')
		n--;
	while (n > 0 && set[n - 1] != '/')
		n--;
	return strncmp(set + n, "val", 3) == 0;
}

void ct_imagenet_note(const ct_dataset *d, const char *set, char *text, size_t len)
{
	const bool val = is_val(set);
	const int64_t complete = val ? IMAGENET_VAL : IMAGENET_TRAIN, n = ct_dataset_info(d)->n;
	const char *what = val ? "validation" : "training";

	text[0] = '\0';
	if (!is_imagenet(d))
		return;
	if (ct_dataset_info(d)->n_classes < IMAGENET_CLASSES)
		snprintf(text, len, "ImageNet has %d classes: %d are missing", IMAGENET_CLASSES,
			 IMAGENET_CLASSES - ct_dataset_info(d)->n_classes);
	else if (n == complete)
		snprintf(text, len, "this is the number of images of ImageNet's complete %s set", what);
	else
		snprintf(text, len, "ImageNet's complete %s set has %lld images: %lld %s", what, (long long)complete,
			 (long long)(n < complete ? complete - n : n - complete),
			 n < complete ? "are missing" : "too many");
}
