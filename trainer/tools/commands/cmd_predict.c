/* `ctrain predict MODEL IMAGE...`: prints the most likely classes of image files. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/predict/image_list.h"
#include "trainer/tools/predict/output.h"

#define MAX_ROWS 32

/* Everything that must be released. */
struct state {
	struct ct_image_list list;
	struct ct_predictor p;
	struct ct_predict_output output;
};

static enum ct_status choose_format(const struct ct_cli *cli, enum ct_predict_format *out)
{
	const struct ct_predict_options *o = cli->own;

	if (cli->json + o->jsonl + o->csv > 1)
		return CT_FAIL(CT_USAGE, "use only one of --json, --jsonl and --csv");
	*out = cli->json ? CT_PREDICT_JSON : o->jsonl ? CT_PREDICT_JSONL : o->csv ? CT_PREDICT_CSV : CT_PREDICT_TEXT;
	return CT_OK;
}

/* The accuracy is a result; the speed is not. */
static enum ct_status finish(struct ct_predict_output *o, double seconds)
{
	struct ct_str text = {0};

	if (o->format == CT_PREDICT_JSON)
		return ct_print_json(ct_predict_output_json(o, seconds), false);
	ct_predict_output_accuracy(o, &text);
	if (o->format == CT_PREDICT_TEXT)
		CT_TRY(ct_print_text(&text));
	else
		fprintf(stderr, "%s", ct_str_text(&text));
	ct_str_release(&text);
	if (o->n > 1)
		fprintf(stderr, "%u images in %.2f s: %.3g images/s\n", o->n, seconds,
			o->n / (seconds > 0 ? seconds : 1e-9));
	return CT_OK;
}

static enum ct_status predict(const struct ct_cli *cli, const struct ct_model_request *request, struct state *s)
{
	const struct ct_predict_options *o = cli->own;
	struct ct_predict_opts opts = {0};
	enum ct_predict_format format;
	int64_t top, start;

	CT_TRY(choose_format(cli, &format));
	CT_TRY(ct_cli_number("--top", o->top, format == CT_PREDICT_CSV ? 1 : 5, 1, 1000000, &top));
	opts.top = (int)top;
	if (o->tta)
		CT_TRY(ct_views_parse(o->tta, &opts.views));
	for (int i = 1; i < cli->n_args; i++)
		CT_TRY(ct_image_list_add(&s->list, cli->args[i]));
	if (s->list.n == 0)
		return CT_FAIL(CT_DATA, "there are no images: standard input is empty");
	CT_TRY(ct_predictor_open(request, s->list.n < MAX_ROWS ? (int)s->list.n : MAX_ROWS, &s->p));
	CT_TRY(ct_predict_output_init(&s->output, format, &s->p, s->list.paths, s->list.n));
	start = ct_now_ns();
	CT_TRY(ct_predictor_run(&s->p, s->list.paths, s->list.n, &opts, ct_predict_output_add, &s->output));
	CT_TRY(finish(&s->output, ct_seconds_since(start)));
	if (s->output.n_bad == 0)
		return CT_OK;
	return CT_FAIL(CT_DATA, "%u of %u images could not be read (they are listed above)", s->output.n_bad,
		       s->list.n);
}

enum ct_status ct_cmd_predict(const struct ct_cli *cli)
{
	const struct ct_model_request request = {cli->args[0], cli->checkpoint, cli->config, cli->sets, cli->n_sets};
	const char *level = getenv("CTRAIN_LOG");
	struct state s = {0};
	/* main has already applied CTRAIN_LOG. */
	enum ct_status st = level && level[0] ? CT_OK : ct_log_configure("warn");

	if (st == CT_OK)
		st = predict(cli, &request, &s);
	ct_predict_output_release(&s.output);
	ct_predictor_release(&s.p);
	ct_image_list_release(&s.list);
	return st;
}
