/* The tables of all configuration keys and sections, made from trainer/config/keys.def. */
#include "trainer/config/config_impl.h"

#include <string.h>

#include "dist/comm/kind.h"

/* Abbreviations in keys.def. */
#define MLP "model.name=mlp"
#define RESNET_STEMS "resnet18|resnet34|resnet50|resnet101|resnet152|resnext50_32x4d|wide_resnet50_2"
#define RESNETS RESNET_STEMS "|resnet20|resnet32|resnet44|resnet56"
#define ENCODED "data.name=imagefolder|shards"
#define IMAGES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards|synthetic"
#define COLOR "data.name=cifar10|cifar100|imagefolder|shards|synthetic"
#define FILES "data.name=mnist|fashion_mnist|idx|cifar10|cifar100|imagefolder|shards"
#define SYNTHETIC "data.name=synthetic|synthetic_regression"
/* clang-format off */
#define WORDS(...) (const char *const[]){__VA_ARGS__, NULL}
/* clang-format on */
#define LEARNED .flags = CT_KEY_LEARNED
#define ADDED .flags = CT_KEY_LEARNED | CT_KEY_ADDED
#define SHARED .flags = CT_KEY_SHARED
#define ADVANCED .advanced = true

/* Enumerations are read and written as int through their offsets. */
_Static_assert(sizeof(enum ct_model) == sizeof(int) && sizeof(enum ct_precision) == sizeof(int), "enumerations");

static const struct ct_section sections[] = {
#define SECTION(path, doc) {#path, doc},
#include "trainer/config/keys.def"
};

#define TYPE_INT .type = CT_KEY_INT
#define TYPE_FLOAT .type = CT_KEY_FLOAT
#define TYPE_MIB .type = CT_KEY_MIB
#define TYPE_SECONDS .type = CT_KEY_SECONDS
#define TYPE_BOOL .type = CT_KEY_BOOL
#define TYPE_STR .type = CT_KEY_STR
#define TYPE_ENUM(tag, list) .type = CT_KEY_ENUM, .choices = CHOICES(tag, list)
#define TYPE_INTS .type = CT_KEY_INTS
#define TYPE_FLOATS .type = CT_KEY_FLOATS
#define TYPE_STRS .type = CT_KEY_STRS
#define TYPE_SIZES .type = CT_KEY_SIZES
/* The length has a place for the NULL at the end. It is computed from an array of the enumeration because compilers
 * then warn about a list that belongs to another enumeration. */
/* clang-format off */
#define CHOICES(tag, list) \
	(const char *const[sizeof((enum tag[]){list(CT_CHOICE_ID)}) / sizeof(enum tag) + 1]){list(CT_CHOICE_NAME)}
/* clang-format on */
#define ROW(key, path, type, ...) {.name = key, TYPE_##type, .offset = offsetof(struct ct_config, path), __VA_ARGS__},

static const struct ct_key keys[] = {
#define KEY(section, field, type, ...) ROW(#section "." #field, section.field, type, __VA_ARGS__)
#define TOP(field, type, ...) ROW(#field, field, type, __VA_ARGS__)
#define PART(section, key, field, type, ...) ROW(#section "." #key, section.field, type, __VA_ARGS__)
#define RANGE(section, field, min, ...) ROW(#section "." #field, section.field, INT, .flags = CT_KEY_RANGE, __VA_ARGS__)
#include "trainer/config/keys.def"
};

/* Conditions that many keys have in common. docs/CONFIG.md defines each name once. */
static const struct {
	const char *only, *name;
} groups[] = {
	{"model.name=" RESNETS, "residual networks"},
	{"model.name=" RESNET_STEMS, "ImageNet residual networks"},
	{IMAGES, "image data sets"},
	{COLOR, "data sets that can have color images"},
	{FILES, "data sets in files"},
	{ENCODED, "JPEG and PNG files"},
};

const char *ct__only_group_at(size_t i, const char **only)
{
	if (i >= CT_ARRAY_LEN(groups))
		return NULL;
	*only = groups[i].only;
	return groups[i].name;
}

_Static_assert(CT_ARRAY_LEN(keys) + CT_ARRAY_LEN(sections) <= CT__KEYS_MAX, "raise CT__KEYS_MAX");

size_t ct__key_count(void)
{
	return CT_ARRAY_LEN(keys);
}

const struct ct_key *ct__key_at(size_t i)
{
	return &keys[i];
}

bool ct__key_has_parts(const struct ct_key *k)
{
	size_t len = strlen(k->name);

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strncmp(keys[i].name, k->name, len) == 0 && keys[i].name[len] == '.')
			return true;
	}
	return false;
}

size_t ct__key_index(const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t len = dot ? (size_t)(dot - name) : 0;

	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (strcmp(keys[i].name, name) == 0)
			return i;
		if (dot && strcmp(dot + 1, CT_KEY_OWN_PART) == 0 && strncmp(keys[i].name, name, len) == 0 &&
		    !keys[i].name[len] && ct__key_has_parts(&keys[i]))
			return i;
	}
	return SIZE_MAX;
}

const struct ct_key *ct__key_find(const char *name)
{
	size_t i = ct__key_index(name);

	return i == SIZE_MAX ? NULL : &keys[i];
}

const struct ct_section *ct__section_at(size_t i)
{
	return i < CT_ARRAY_LEN(sections) ? &sections[i] : NULL;
}

bool ct__section_exists(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(sections); i++) {
		if (strcmp(sections[i].name, name) == 0)
			return true;
	}
	return false;
}
