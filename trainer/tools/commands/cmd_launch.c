/* `ctrain launch --hosts a:4,b:4 CONFIG`: trains on several hosts over ssh. */
#include <stdio.h>
#include <string.h>

#include "trainer/launch/remote/remote.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

/* What --hosts determines. */
static enum ct_status check_sets(const struct ct_cli *cli)
{
	static const char *const taken[] = {"launch.nodes", "launch.node_rank", "launch.procs", "launch.procs_list",
					    "launch.init"};

	for (size_t i = 0; i < cli->n_sets; i++) {
		for (size_t k = 0; k < CT_ARRAY_LEN(taken); k++) {
			if (strcmp(cli->sets[i].key, taken[k]) == 0) {
				CT_FAIL(CT_USAGE, "%s cannot be used with `ctrain launch`", cli->sets[i].origin);
				return ct_error_hint("--hosts a:4,b:4 sets nodes and ranks");
			}
		}
	}
	return CT_OK;
}

static enum ct_status check_master(const struct ct_hosts *hosts, const struct ct_config *cfg)
{
	if (hosts->n == 1 || cfg->launch.master_addr[0] || strcmp(hosts->all[0].name, "localhost") != 0)
		return CT_OK;
	CT_FAIL(CT_USAGE, "--hosts: the other hosts cannot reach the first one, localhost, by this name");
	return ct_error_hint("pass --master-addr with an address of this host");
}

enum ct_status ct_cmd_launch(const struct ct_cli *cli)
{
	const struct ct_launch_options *o = cli->own;
	struct ct_hosts hosts = {0};
	struct ct_config *cfg = NULL;
	enum ct_status st;

	if (!o->hosts) {
		CT_FAIL(CT_USAGE, "`ctrain launch` needs --hosts");
		return ct_error_hint("ctrain launch --hosts a:4,b:4 CONFIG.yaml starts 4 ranks on each of two hosts");
	}
	CT_TRY(check_sets(cli));
	CT_TRY_GOTO(ct_hosts_parse(o->hosts, &hosts), st, out);
	CT_TRY_GOTO(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg), st, out);
	CT_TRY_GOTO(check_master(&hosts, cfg), st, out);
	st = ct_remote_run(&(struct ct_remote_opts){.hosts = &hosts,
						    .ssh = o->ssh ? o->ssh : "ssh",
						    .config = cli->args[0],
						    .cfg = cfg,
						    .sets = cli->sets,
						    .n_sets = cli->n_sets,
						    .verbose = cli->verbose});
out:
	ct_config_destroy(cfg);
	ct_hosts_release(&hosts);
	return st;
}
