/* `ctrain report RUN [RUN ...]`: writes the report of one or several runs. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/report/report.h"

enum ct_status ct_cmd_report(const struct ct_cli *cli)
{
	const char *out = cli->out ? cli->out : "report.html";
	char *path = NULL;
	enum ct_status st;

	for (int i = 0; i < cli->n_args; i++) {
		char *metrics = ct_path_join(cli->args[i], "metrics.jsonl");
		const bool exists = metrics && ct_file_exists(metrics);

		ct_free(metrics);
		if (!exists) {
			CT_FAIL(CT_NOT_FOUND, "%s is not a run directory: it has no metrics.jsonl", cli->args[i]);
			return ct_error_hint("a run directory contains config.yaml and metrics.jsonl");
		}
	}
	if (cli->n_args > 1 || cli->out)
		st = ct_report_write(cli->args, cli->n_args, out);
	else
		st = ct_report_write_run(cli->args[0], NULL, &path);
	if (st == CT_OK)
		printf("%s\n", path ? path : out);
	ct_free(path);
	return st;
}
