#include "trainer/plan/describe.h"

#include <string.h>

#include "base/mem.h"

/* Returns the short side to which image files are resized; 0: the model's input is not an image. */
static int resize_of(const struct ct_dataset_info *info, const struct ct_run_plan *p)
{
	const int side = p->val_input.h > p->val_input.w ? p->val_input.h : p->val_input.w;

	if (info->kind == CT_SAMPLE_ENCODED)
		return p->val_transform.resize ? p->val_transform.resize : side * 256 / 224;
	/* The short side becomes as long as the crop, which then removes only the ends of the long side. */
	return info->kind == CT_SAMPLE_U8_HWC && (p->val_input.c == 1 || p->val_input.c == 3) ? side : 0;
}

enum ct_status ct_plan_describe(const struct ct_config *c, const struct ct_dataset_info *info,
				const struct ct_run_plan *p, struct ct_description *out)
{
	struct ct_plan_model model;

	*out = (struct ct_description){
		.resize = resize_of(info, p), .exif = p->val_transform.image.exif, .fast = p->val_transform.image.fast};
	for (int i = 0; i < (int)CT_ARRAY_LEN(out->mean); i++) {
		bool used = info->kind != CT_SAMPLE_F32;

		out->mean[i] = used ? p->net.mean[i] : 0;
		out->std[i] = used ? p->net.std[i] : 1;
	}
	CT_TRY(ct_plan_model(c, info, p->val_input, &model));
	if (c->model.name != CT_MODEL_MLP) /* a default value that does not apply */
		model.spec.n_hidden = 0;
	return ct_description_set_model(out, &model.spec);
}

/* Some data sets name only some classes, or none. */
static enum ct_status add_classes(const ct_dataset *data, struct ct_description *d)
{
	const int n = d->model.n_outputs;
	const char **names;

	CT_TRY_ALLOC(names = CT_NEW_ARRAY(const char *, (size_t)n + 1));
	bool all = ct_dataset_info(data)->n_classes == n;
	for (int i = 0; i < n && all; i++) {
		names[i] = ct_dataset_class_name(data, i);
		all = names[i] != NULL;
	}
	enum ct_status st = all ? ct_description_set_classes(d, names, n) : CT_OK;
	ct_free(names);
	return st;
}

enum ct_status ct_plan_describe_data(const struct ct_config *c, const ct_dataset *data, const struct ct_run_plan *p,
				     struct ct_str *out)
{
	struct ct_description d;
	enum ct_status st = ct_plan_describe(c, ct_dataset_info(data), p, &d);

	if (st == CT_OK)
		st = add_classes(data, &d);
	if (st == CT_OK)
		st = ct_description_write(&d, out);
	ct_description_release(&d);
	return st;
}
