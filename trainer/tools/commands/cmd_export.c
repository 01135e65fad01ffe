/* `ctrain export MODEL --out FILE` and `ctrain ckpt export PATH --out FILE`: write a model for other programs. */
#include "base/file.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/export/export.h"

static enum ct_status export(const struct ct_cli *cli, const char *which)
{
	const struct ct_model_request q = {cli->args[0], which, cli->config, cli->sets, cli->n_sets};
	struct ct_str report = {0};
	enum ct_status st = CT_OK;

	if (!cli->out) {
		CT_FAIL(CT_USAGE, "the option --out FILE is required");
		return ct_error_hint("for example --out model.onnx or --out model.safetensors");
	}
	CT_TRY_GOTO(ct_export_check_path(cli->out), st, out);
	CT_TRY_GOTO(ct_export(&q, cli->out, &report), st, out);
	CT_TRY_GOTO(ct_print_text(&report), st, out);
out:
	ct_str_release(&report);
	return st;
}

enum ct_status ct_cmd_export(const struct ct_cli *cli)
{
	return export(cli, cli->checkpoint);
}

enum ct_status ct_cmd_ckpt_export(const struct ct_cli *cli)
{
	char *list = ct_path_join(cli->args[0], "checkpoints");
	const bool is_run = list && ct_file_exists(list);

	ct_free(list);
	return export(cli, is_run ? "last" : NULL); /* like the other ckpt commands */
}
