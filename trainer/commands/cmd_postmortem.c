/* `ctrain postmortem RUN`: prints the report after a failure. */
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"
#include "trainer/job/postmortem/postmortem.h"

enum ct_status ct_cmd_postmortem(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	ct_json *report;

	CT_TRY(ct_postmortem_read(cli->args[0], &report));
	if (cli->json)
		return ct__print_json(report, true);
	ct_postmortem_text(report, &text);
	ct_json_destroy(report);
	return ct__print_text(&text);
}
