#include "trainer/plan/assume.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/plan/run_plan.h"

#define EXAMPLE "for example --assume train=1281167,val=50000,classes=1000,size=224"

enum ct_status ct_assume_parse(const char *text, struct ct_assumed *out)
{
	struct {
		const char *name;
		int64_t *value, lo, hi;
	} parts[] = {
		{"train", &out->train, 1, UINT32_MAX / 2},
		{"val", &out->val, 1, UINT32_MAX / 2},
		{"classes", &out->classes, 2, 1000000},
		{"size", &out->size, 8, 4096},
	};

	*out = (struct ct_assumed){0};
	for (const char *s = text; *s; s += strcspn(s, ","), s += *s == ',') {
		const size_t len = strcspn(s, ","), name = strcspn(s, "=");
		char number[24] = "";
		size_t i = 0;

		while (i < CT_ARRAY_LEN(parts) &&
		       (strlen(parts[i].name) != name || strncmp(parts[i].name, s, name) != 0))
			i++;
		if (name < len && len - name - 1 < sizeof(number))
			memcpy(number, s + name + 1, len - name - 1);
		if (i == CT_ARRAY_LEN(parts) || ct_parse_i64(number, parts[i].value) < 0 ||
		    *parts[i].value < parts[i].lo || *parts[i].value > parts[i].hi) {
			CT_FAIL(CT_USAGE, "--assume: \"%.*s\" is not train, val, classes or size with a number",
				(int)(len < 40 ? len : 40), s);
			return ct_error_hint("%s", EXAMPLE);
		}
	}
	if (out->train == 0) {
		CT_FAIL(CT_USAGE, "--assume needs the number of training samples");
		return ct_error_hint("%s", EXAMPLE);
	}
	return CT_OK;
}

enum ct_status ct_assume_info(const struct ct_assumed *a, const struct ct_config *c, bool train,
			      struct ct_dataset_info *out)
{
	CT_TRY(ct_plan_foresee_data(c, out));
	out->n = (uint32_t)(train ? a->train : a->val);
	out->n_groups = 1;
	if (a->classes > 0)
		out->n_classes = (int)a->classes;
	else if (ct_plan_is_encoded(c) && c->data.classes <= 0) {
		CT_FAIL(CT_USAGE, "--assume needs the number of classes");
		return ct_error_hint("%s", EXAMPLE);
	}
	if (out->h == 0 && !ct_plan_is_encoded(c)) {
		CT_FAIL(CT_USAGE, "the shape of the samples is only in the data files");
		return ct_error_hint("set data.shape, for example data.shape=[1,28,28]");
	}
	return CT_OK;
}

enum ct_status ct_assume_load(const struct ct_assumed *a, const char *path, const struct ct_config_set *given, size_t n,
			      struct ct_config **out)
{
	struct ct_config_set *sets;
	enum ct_status st;
	char size[24];

	CT_TRY_ALLOC(sets = CT_NEW_ARRAY(struct ct_config_set, n + 1));
	snprintf(size, sizeof(size), "%lld", (long long)a->size);
	for (size_t i = 0; i < n; i++)
		sets[i] = given[i];
	sets[n] = (struct ct_config_set){.key = "data.train.size", .value = size, .origin = "--assume"};
	st = ct_config_load(path, sets, n + (a->size > 0), out);
	ct_free(sets);
	return st;
}
