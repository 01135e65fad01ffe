#define CT_LOG_COMPONENT "report"
#include "base/file.h"
#include "base/log.h"
#include "trainer/tools/report/images_impl.h"

static enum ct_status open_all(const char *run_dir, struct ct__opened_data *o)
{
	struct ct_run_plan p;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(run_dir, "config.yaml"));
	enum ct_status st = ct_config_load(path, NULL, 0, &o->cfg);
	ct_free(path);
	if (st == CT_OK)
		st = ct_plan_open_data(o->cfg, true, NULL, &o->train);
	if (st == CT_OK && ct_plan_has_val(o->cfg))
		st = ct_plan_open_data(o->cfg, false, ct_dataset_info(o->train), &o->val);
	if (st == CT_OK)
		st = ct_run_plan_make(o->cfg, 1, ct_dataset_info(o->train), o->val ? ct_dataset_info(o->val) : NULL,
				      &p);
	if (st == CT_OK)
		ct_image_source_set(&o->data, o->cfg, &p, o->train, o->val);
	return st;
}

void ct__report_data_open(const char *run_dir, struct ct__opened_data *o)
{
	*o = (struct ct__opened_data){0};
	if (open_all(run_dir, o) == CT_OK)
		return;
	CT_WARN("the report has no images, because the data of the run cannot be opened: %s", ct_error_message());
	ct_error_clear();
}

void ct__report_data_close(struct ct__opened_data *o)
{
	ct_dataset_close(o->val);
	ct_dataset_close(o->train);
	ct_config_destroy(o->cfg);
}
