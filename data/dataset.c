#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset_impl.h"

/* Normalization constants of known data sets: mean and standard deviation of all training pixels. */
static const float cifar10_channels[6] = {0.4914f, 0.4822f, 0.4465f, 0.2470f, 0.2435f, 0.2616f};
static const float cifar100_channels[6] = {0.5071f, 0.4865f, 0.4409f, 0.2673f, 0.2564f, 0.2762f};
static const float imagenet_channels[6] = {0.485f, 0.456f, 0.406f, 0.229f, 0.224f, 0.225f};

static const char *const fashion_classes[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
					      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

static const struct ct_dataset_kind kinds[] = {
	{.name = "mnist",
	 .ops = &ct__dataset_idx_ops,
	 .c = 1,
	 .h = 28,
	 .w = 28,
	 .n_classes = 10,
	 .mean = 0.1307f,
	 .std = 0.3081f},
	{.name = "fashion_mnist",
	 .ops = &ct__dataset_idx_ops,
	 .c = 1,
	 .h = 28,
	 .w = 28,
	 .n_classes = 10,
	 .mean = 0.2860f,
	 .std = 0.3530f,
	 .class_names = fashion_classes,
	 .fetch = "--fashion "},
	{.name = "idx", .ops = &ct__dataset_idx_ops, .mean = 0.5f, .std = 0.5f},
	{.name = "cifar10",
	 .ops = &ct__dataset_cifar_ops,
	 .c = 3,
	 .h = 32,
	 .w = 32,
	 .n_classes = 10,
	 .channels = cifar10_channels},
	{.name = "cifar100",
	 .ops = &ct__dataset_cifar_ops,
	 .c = 3,
	 .h = 32,
	 .w = 32,
	 .n_classes = 100,
	 .channels = cifar100_channels},
	{.name = "shards", .ops = &ct__dataset_shards_ops, .c = 3, .channels = imagenet_channels},
	{.name = "imagefolder", .ops = &ct__dataset_imagefolder_ops, .c = 3, .channels = imagenet_channels},
	{.name = "synthetic", .ops = &ct__dataset_synth_ops, .mean = 0.5f, .std = 0.25f},
	{.name = "synthetic_regression", .ops = &ct__dataset_regression_ops, .mean = 0, .std = 1},
};

const char *ct_dataset_name_at(size_t i)
{
	return i < CT_ARRAY_LEN(kinds) ? kinds[i].name : NULL;
}

static enum ct_status unknown_name(const char *name)
{
	const char *names[CT_ARRAY_LEN(kinds)], *near;
	char list[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		names[i] = kinds[i].name;
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", names[i]);
	}
	near = ct_suggest(name, names, CT_ARRAY_LEN(kinds));
	CT_FAIL(CT_CONFIG, "unknown data set \"%s\"", name);
	if (near)
		ct_error_hint("did you mean \"%s\"? The data sets are: %s", near, list);
	else
		ct_error_hint("the data sets are: %s", list);
	return CT_CONFIG;
}

const struct ct_dataset_kind *ct__dataset_kind_find(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		if (strcmp(kinds[i].name, name) == 0)
			return &kinds[i];
	}
	return NULL;
}

enum ct_status ct_dataset_open(const struct ct_dataset_spec *spec, ct_dataset **out)
{
	const char *name = spec->name ? spec->name : "";
	const struct ct_dataset_kind *kind = ct__dataset_kind_find(name);

	return kind ? kind->ops->open(kind, spec, out) : unknown_name(name);
}

enum ct_status ct_dataset_peek(const struct ct_dataset_spec *spec, struct ct_dataset_info *out)
{
	const char *name = spec->name ? spec->name : "";
	const struct ct_dataset_kind *kind = ct__dataset_kind_find(name);

	if (!kind)
		return unknown_name(name);
	return kind->ops->peek ? kind->ops->peek(kind, spec, out) : CT_OK;
}

enum ct_status ct_dataset_find(const struct ct_dataset_spec *spec)
{
	const char *name = spec->name ? spec->name : "";
	const struct ct_dataset_kind *kind = ct__dataset_kind_find(name);

	if (!kind)
		return unknown_name(name);
	return kind->ops->find ? kind->ops->find(kind, spec) : CT_OK;
}

void ct_dataset_close(ct_dataset *d)
{
	if (d)
		d->ops->close(d);
}

void ct__dataset_init(ct_dataset *d, const struct ct_dataset_kind *kind, uint32_t n, int c, int h, int w)
{
	d->ops = kind->ops;
	d->kind = kind;
	d->info.n = n;
	d->info.c = c;
	d->info.h = h;
	d->info.w = w;
	d->info.sample_bytes = (size_t)c * (size_t)h * (size_t)w;
	snprintf(d->info.name, sizeof(d->info.name), "%s", kind->name);
	for (int i = 0; i < (int)CT_ARRAY_LEN(d->info.mean); i++) {
		bool own = kind->channels && i < 3;

		d->info.mean[i] = own ? kind->channels[i] : kind->mean;
		d->info.std[i] = own ? kind->channels[3 + i] : kind->std;
	}
	d->info.n_groups = 1;
}

const struct ct_dataset_info *ct_dataset_info(const ct_dataset *d)
{
	return &d->info;
}

enum ct_status ct_dataset_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	if (i >= d->info.n)
		return CT_FAIL(CT_BUG, "there is no sample %u in data set %s, which has %u samples", i, d->info.name,
			       d->info.n);
	if (!d->ops->read)
		return CT_FAIL(
			CT_BUG,
			"the samples of data set %s are compressed: use ct_dataset_fetch instead of ct_dataset_read",
			d->info.name);
	return d->ops->read(d, i, x, label, target);
}

enum ct_status ct_dataset_fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label)
{
	if (i >= d->info.n)
		return CT_FAIL(CT_BUG, "there is no sample %u in data set %s, which has %u samples", i, d->info.name,
			       d->info.n);
	if (!d->ops->fetch)
		return CT_FAIL(
			CT_BUG,
			"the samples of data set %s are not compressed: use ct_dataset_read instead of ct_dataset_fetch",
			d->info.name);
	return d->ops->fetch(d, i, buf, label);
}

void ct_dataset_describe(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	if (i < d->info.n && d->ops->describe)
		d->ops->describe(d, i, text, len);
	else
		snprintf(text, len, "sample %u of %s", i, d->info.name);
}

enum ct_status ct_dataset_label(const ct_dataset *d, uint32_t i, int32_t *label)
{
	if (i >= d->info.n || d->info.n_classes == 0 || (!d->ops->label && !d->ops->read))
		return CT_FAIL(CT_BUG, "there is no sample %u with a label in data set %s, which has %u samples", i,
			       d->info.name, d->info.n);
	if (!d->ops->label)
		return d->ops->read(d, i, NULL, label, NULL);
	*label = d->ops->label(d, i);
	return CT_OK;
}

void ct_dataset_key(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	if (i < d->info.n && d->ops->key)
		d->ops->key(d, i, text, len);
	else
		snprintf(text, len, "%u", i);
}

void ct_dataset_skipped(const ct_dataset *d, uint32_t i, struct ct_refusal *out)
{
	*out = (struct ct_refusal){0};
	if (i < d->info.n_skipped && d->ops->skipped)
		d->ops->skipped(d, i, out);
	else
		snprintf(out->reason, sizeof(out->reason), "problem %u of %s", i, d->info.name);
}

const char *ct_dataset_class_name(const ct_dataset *d, int label)
{
	if (label < 0 || label >= d->info.n_classes)
		return NULL;
	if (d->ops->class_name)
		return d->ops->class_name(d, label);
	return d->kind->class_names && label < d->kind->n_classes ? d->kind->class_names[label] : NULL;
}

enum ct_status ct_dataset_check_classes(const ct_dataset *train, const ct_dataset *val)
{
	int n = train->info.n_classes < val->info.n_classes ? train->info.n_classes : val->info.n_classes;

	for (int i = 0; i < n; i++) {
		const char *a = ct_dataset_class_name(train, i), *b = ct_dataset_class_name(val, i);

		if (!a || !b || strcmp(a, b) == 0)
			continue;
		CT_FAIL(CT_DATA, "class %d is \"%s\" in the training data, but \"%s\" in the evaluation data", i, a, b);
		return ct_error_hint(
			"both data sets must have the same classes in the same order: list them in a file and set data.classes_file");
	}
	if (val->info.n_classes > train->info.n_classes)
		return CT_FAIL(CT_DATA, "the evaluation data has %d classes, but the training data has only %d",
			       val->info.n_classes, train->info.n_classes);
	return CT_OK;
}

enum ct_status ct_bytes_reserve(struct ct_bytes *b, size_t cap)
{
	size_t more = b->cap + b->cap / 2;
	uint8_t *p;

	if (cap <= b->cap)
		return CT_OK;
	if (more < cap)
		more = cap;
	CT_TRY_ALLOC(p = ct_realloc(b->data, more, 1));
	b->data = p;
	b->cap = more;
	return CT_OK;
}

void ct_dataset_digest(const ct_dataset *d, char hex[65])
{
	struct ct_sha256 h;
	char text[128];
	int n = snprintf(text, sizeof(text), "ctrain data 1 n=%u c=%d h=%d w=%d classes=%d targets=%d\n", d->info.n,
			 d->info.c, d->info.h, d->info.w, d->info.n_classes, d->info.n_targets);

	ct_sha256_init(&h);
	ct_sha256_update(&h, text, (size_t)n);
	d->ops->digest(d, &h);
	ct_sha256_final_hex(&h, hex);
}
