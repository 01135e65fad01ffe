/* `ctrain postmortem RUN`: prints the report after a failure. */
#include "trainer/job/postmortem/postmortem.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"

enum ct_status ct_cmd_postmortem(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	ct_json *report;

	CT_TRY(ct_postmortem_read(cli->args[0], &report));
	if (cli->json)
		return ct_print_json(report, true);
	ct_postmortem_text(report, &text);
	ct_json_destroy(report);
	return ct_print_text(&text);
}
