/* `ctrain data stats CONFIG|DIR`: facts about all images. */
#include "base/log.h"
#include "base/thread.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/init/image_layout.h"
#include "trainer/tools/init/stats.h"

/* Opens the data sets of a configuration. */
static enum ct_status open_config(const struct ct_cli *cli, ct_dataset *data[CT_STATS_SETS],
				  struct ct_image_opts *image)
{
	struct ct_config *c = NULL;
	enum ct_status st;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	*image = (struct ct_image_opts){.max_pixels = (uint64_t)c->data.max_pixels, .exif = c->data.exif};
	st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_plan_open_data(c, true, NULL, &data[0]);
	if (st == CT_OK && ct_plan_has_val(c))
		st = ct_plan_open_data(c, false, ct_dataset_info(data[0]), &data[1]);
	ct_config_destroy(c);
	return st;
}

static enum ct_status open_directory(const char *dir, ct_dataset *data[CT_STATS_SETS])
{
	struct ct_layout l;

	CT_TRY(ct_layout_find(dir, NULL, &l));
	CT_TRY(ct_layout_open(&l, true, &data[0]));
	return l.has_val ? ct_layout_open(&l, false, &data[1]) : CT_OK;
}

static enum ct_status print(const struct ct_cli *cli, const struct ct_stats_set *sets, int n)
{
	struct ct_duplicates d;
	struct ct_str text = {0};
	ct_json *j;
	enum ct_status st;

	CT_TRY(ct_duplicates_find(sets, n, &d));
	if (cli->json) {
		st = ct_stats_json(sets, n, &d, &j);
		if (st == CT_OK)
			st = ct_print_json(j, false);
	} else {
		st = ct_stats_text(sets, n, &d, &text);
		if (st == CT_OK)
			st = ct_print_text(&text);
		else
			ct_str_release(&text);
	}
	ct_duplicates_release(&d);
	return st;
}

static enum ct_status stats(const struct ct_cli *cli, ct_dataset *const data[CT_STATS_SETS],
			    const struct ct_image_opts *image)
{
	struct ct_stats_set sets[CT_STATS_SETS] = {{.name = "train", .data = data[0]},
						   {.name = "val", .data = data[1]}};
	const int n = data[1] ? 2 : 1;
	enum ct_status st = CT_OK;
	int64_t threads;

	CT_TRY(ct_cli_number("--threads", cli->threads, ct_cpu_count(), 1, 256, &threads));
	for (int i = 0; i < n && st == CT_OK; i++) {
		const struct ct_survey_opts o = {.what = i == 0 ? "reading train" : "reading val",
						 .data = sets[i].data,
						 .image = *image,
						 .threads = (int)threads};

		st = ct_survey_make(&o, &sets[i].survey);
	}
	if (st == CT_OK)
		st = print(cli, sets, n);
	for (int i = 0; i < n; i++)
		ct_survey_release(&sets[i].survey);
	return st;
}

enum ct_status ct_cmd_data_stats(const struct ct_cli *cli)
{
	const bool config = ct_ends_with(cli->args[0], ".yaml") || ct_ends_with(cli->args[0], ".yml");
	ct_dataset *data[CT_STATS_SETS] = {0};
	struct ct_image_opts image = {0};
	enum ct_status st;

	if (!config && cli->n_sets > 0)
		return CT_FAIL(CT_USAGE,
			       "KEY=VALUE (\"%s\") can be used with a configuration, but not with a directory",
			       cli->sets[0].key);
	st = config ? open_config(cli, data, &image) : open_directory(cli->args[0], data);
	if (st == CT_OK)
		st = stats(cli, data, &image);
	for (int i = 0; i < CT_STATS_SETS; i++)
		ct_dataset_close(data[i]);
	return st;
}
