/* `ctrain init DIR` */
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/init/init.h"

enum ct_status ct_cmd_init(const struct ct_cli *cli)
{
	const struct ct_init_opts o = {
		.dir = cli->args[0], .labels = cli->labels, .out = cli->out, .force = cli->force};

	return ct_init_run(&o);
}
