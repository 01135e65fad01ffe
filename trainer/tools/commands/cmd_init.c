/* `ctrain init DIR` */
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/init/init.h"

enum ct_status ct_cmd_init(const struct ct_cli *cli)
{
	const struct ct_init_options *o = cli->own;
	const struct ct_init_opts opts = {
		.dir = cli->args[0], .labels = o->labels, .out = cli->out, .force = cli->force};

	return ct_init_run(&opts);
}
