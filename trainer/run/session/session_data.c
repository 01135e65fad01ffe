/* Reading the lists of a large data set may take as long as waiting for the other ranks, so both happen at the same
 * time. Only the thread touches struct ct_data_opening until it has been joined. An error is stored with the struct,
 * because error chains belong to threads, and is restored in the thread that joins. If one of the two sets fails, the
 * other one is closed: the caller gets all of them or none. */
#include "trainer/run/session/session_data.h"

#include "base/clock.h"
#include "base/log.h"
#include "trainer/plan/run_plan.h"

static enum ct_status open_both(struct ct_data_opening *o)
{
	if (!o->val_only)
		CT_TRY(ct_plan_open_data(o->cfg, true, NULL, &o->train));
	if (!ct_plan_has_val(o->cfg))
		return CT_OK;
	CT_TRY(ct_plan_open_data(o->cfg, false, o->train ? ct_dataset_info(o->train) : NULL, &o->val));
	return o->train ? ct_dataset_check_classes(o->train, o->val) : CT_OK;
}

static void *opening_main(void *arg)
{
	struct ct_data_opening *o = arg;
	int64_t t0 = ct_now_ns();

	ct_log_off_terminal(o->quiet);
	o->error.status = open_both(o);
	if (o->error.status < 0)
		ct_error_save(&o->error);
	o->seconds = ct_seconds_since(t0);
	return NULL;
}

enum ct_status ct_data_opening_start(struct ct_data_opening *o, const struct ct_config *cfg, bool val_only, bool quiet)
{
	*o = (struct ct_data_opening){.cfg = cfg, .val_only = val_only, .quiet = quiet};
	return ct_thread_start(&o->thread, "ct-open", opening_main, o);
}

enum ct_status ct_data_opening_finish(struct ct_data_opening *o, ct_dataset **train, ct_dataset **val)
{
	ct_thread_join(&o->thread);
	if (o->error.status < 0) {
		ct_dataset_close(o->train);
		ct_dataset_close(o->val);
		o->train = o->val = NULL;
		return ct_error_restore(&o->error);
	}
	*train = o->train;
	*val = o->val;
	o->train = o->val = NULL;
	return CT_OK;
}
