/* Checks of how ranks are started and connected: launch, device and dist. */
#include <string.h>

#include "dist/comm/kind.h"
#include "trainer/config/check_impl.h"

/* Returns the number of items in a list such as "8,2", or -1 if an item is not an integer from lo to hi. */
static int count_numbers(const char *text, int64_t lo, int64_t hi)
{
	int n = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		char number[24];
		int64_t v;

		if (len >= sizeof(number))
			return -1;
		memcpy(number, text, len);
		number[len] = '\0';
		if (ct_parse_i64(number, &v) != CT_OK || v < lo || v > hi)
			return -1;
		n++;
		text += len;
		if (*text == ',' && *++text == '\0')
			return -1;
	}
	return n;
}

static bool init_fine(const char *url)
{
	const char *port = strrchr(url, ':');

	if (strncmp(url, "tcp://", 6) == 0)
		return port > url + 6 && count_numbers(port + 1, 1, 65535) == 1;
	if (strncmp(url, "file://", 7) == 0)
		return url[7] == '/' && url[8];
	return url[0] == '\0' || strcmp(url, "env://") == 0;
}

/* The rendezvous is given either by a URL, or by host and port. If a source sets both, one would be ignored. */
static void check_meeting(struct ct_checker *k)
{
	static const char *const keys[] = {"launch.master_addr", "launch.master_port"};
	const struct ct_config *c = k->c;
	const bool given[] = {c->launch.master_addr[0] != '\0', c->launch.master_port != 0};
	const struct ct_origin *init = ct__check_origin(k, "launch.init");

	if (!init_fine(c->launch.init))
		ct__check_problem(k, "launch.init",
				  "launch.init \"%s\" must be env://, tcp://host:port or file:///path", c->launch.init);
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (c->launch.init[0] && given[i] && ct__check_fine(k, keys[i]) &&
		    ct__check_origin(k, keys[i])->layer == init->layer)
			ct__check_problem(
				k, keys[i],
				"%s and launch.init (%s) both set the address of the rendezvous; set only one of them",
				keys[i], init->where);
	}
}

static void check_ports(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const char *range = c->dist.port_range, *backend = c->dist.backend;
	const int64_t port = c->launch.master_port;
	int64_t first, last;

	if (!range[0])
		return;
	if (!ct_parse_range(range, 1, 65535, &first, &last))
		ct__check_problem(
			k, "dist.port_range",
			"dist.port_range \"%s\" must be FIRST-LAST, two ports from 1 to 65535, for example \"30000-30100\"",
			range);
	else if (port != 0 && c->launch.nodes > 1 && (port < first || port > last) &&
		 ct__check_fine(k, "launch.master_port"))
		ct__check_problem(
			k, "launch.master_port",
			"launch.master_port=%lld is not in dist.port_range (%s); change one of them, or remove "
			"launch.master_port to use port %lld",
			(long long)port, range, (long long)first);
	if (c->launch.nodes > 1 && ct_comm_has(backend, CT_COMM_OWN_PORTS))
		ct__check_problem(
			k, "dist.port_range",
			"dist.port_range with dist.backend=%s: this library chooses its ports itself (docs/DISTRIBUTED.md, "
			"\"Ports and firewalls\"); remove dist.port_range, or use dist.backend=hier",
			backend);
}

/* One process does not use several devices, as nn.DataParallel does. */
static void check_devices(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const int n = count_numbers(c->launch.devices, 0, 1023);
	const bool no_gpu = strcmp(c->device, "cpu") == 0 || strcmp(c->device, "lazy") == 0;

	if (c->launch.devices[0] && no_gpu)
		ct__check_problem(
			k, "launch.devices",
			"launch.devices=%s selects GPUs, but device=%s computes on the CPU; remove launch.devices, or set device=cuda",
			c->launch.devices, c->device);
	if (c->launch.devices[0] && strncmp(c->device, "cuda:", 5) == 0)
		ct__check_problem(
			k, "launch.devices",
			"launch.devices=%s and device=%s both select GPUs; set device=cuda, or remove launch.devices",
			c->launch.devices, c->device);
	if (n < 0)
		ct__check_problem(k, "launch.devices",
				  "launch.devices \"%s\" must be a list of device numbers, for example \"0,2\"",
				  c->launch.devices);
	if (n > c->launch.procs && c->launch.procs > 0 && !c->launch.procs_list[0] && !no_gpu &&
	    ct__check_fine(k, "launch.procs"))
		ct__check_problem(
			k, "launch.devices",
			"launch.devices=%s lists %d GPUs, but launch.procs=%lld starts %lld process%s, and each process uses one "
			"GPU; set launch.procs=%d (docs/DISTRIBUTED.md: \"Coming from nn.DataParallel\")",
			c->launch.devices, n, (long long)c->launch.procs, (long long)c->launch.procs,
			c->launch.procs == 1 ? "" : "es", n);
}

static void check_pipeline(struct ct_checker *k)
{
	const struct ct_config *c = k->c;

	if (c->launch.pipeline == 1 || !ct__check_fine(k, "launch.pipeline"))
		return;
	if (strcmp(c->device, "auto") != 0 && strcmp(c->device, "cpu") != 0 && strcmp(c->device, "cuda") != 0)
		ct__check_problem(
			k, "launch.pipeline",
			"launch.pipeline=%lld with device=%s: each rank needs a device; set device=cpu, or device=cuda and "
			"launch.devices to choose GPUs",
			(long long)c->launch.pipeline, c->device);
	if (c->precision == CT_PRECISION_FP16 && ct__check_fine(k, "precision"))
		ct__check_problem(
			k, "precision",
			"precision=fp16 with launch.pipeline=%lld: each stage would have a separate loss scale; "
			"set precision=bf16",
			(long long)c->launch.pipeline);
	if (c->train.cuda_graph == CT_CFG_GRAPH_ON && ct__check_fine(k, "train.cuda_graph"))
		ct__check_problem(
			k, "train.cuda_graph",
			"train.cuda_graph=on with launch.pipeline=%lld: the steps of a pipeline, which wait for "
			"messages, are not recorded; set train.cuda_graph=auto",
			(long long)c->launch.pipeline);
	if (c->data.on_device == CT_CFG_ON_DEVICE_ON && ct__check_fine(k, "data.on_device"))
		ct__check_problem(
			k, "data.on_device",
			"data.on_device=on with launch.pipeline=%lld: the stages read batches that the host prepares; "
			"set data.on_device=auto",
			(long long)c->launch.pipeline);
	if (c->dist.bucket_mib == CT_CFG_AUTO && ct__check_fine(k, "dist.bucket_mib"))
		ct__check_problem(
			k, "dist.bucket_mib",
			"dist.bucket_mib=auto with launch.pipeline=%lld: the stages have different gradients, so no common size "
			"is measured; set a number, or remove dist.bucket_mib",
			(long long)c->launch.pipeline);
}

static void check_elastic(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	const char *what = NULL;

	if (c->launch.min_nodes == 0 || !ct__check_fine(k, "launch.nodes"))
		return;
	if (c->launch.restarts == 0)
		what = "launch.restarts, because the job forms again when a node is lost";
	else if (c->batch.global == 0)
		what = "batch.global, so that the batch does not depend on the number of nodes";
	else if (c->launch.pipeline > 1)
		what = "launch.pipeline=1";
	if (what)
		ct__check_problem(k, "launch.nodes", "launch.nodes=%lld..%lld requires %s",
				  (long long)c->launch.min_nodes, (long long)c->launch.nodes, what);
}

void ct__check_launch(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	int n_list = count_numbers(c->launch.procs_list, 1, 1024);

	if (n_list < 0)
		ct__check_problem(
			k, "launch.procs_list",
			"launch.procs_list \"%s\" must contain a number from 1 to 1024 for each node, for example \"8,2\"",
			c->launch.procs_list);
	else if (n_list > 0 && n_list != c->launch.nodes && ct__check_fine(k, "launch.nodes"))
		ct__check_problem(k, "launch.procs_list",
				  "launch.procs_list \"%s\" is for %d nodes, but launch.nodes is %lld",
				  c->launch.procs_list, n_list, (long long)c->launch.nodes);
	/* The variable often remains from a run on several nodes. */
	if (c->launch.nodes == 1 && ct__check_origin(k, "launch.node_rank")->layer == CT_LAYER_ENV)
		k->c->launch.node_rank = 0;
	if (c->launch.node_rank >= c->launch.nodes && ct__check_fine(k, "launch.node_rank") &&
	    ct__check_fine(k, "launch.nodes"))
		ct__check_problem(
			k, "launch.node_rank",
			"launch.node_rank=%lld is out of range; with launch.nodes=%lld it must be from 0 to %lld",
			(long long)c->launch.node_rank, (long long)c->launch.nodes, (long long)c->launch.nodes - 1);
	if (c->launch.nodes > 1 && !c->launch.master_addr[0] && !c->launch.init[0] && ct__check_fine(k, "launch.init"))
		ct__check_problem(
			k, "launch.nodes",
			"launch.nodes=%lld requires launch.master_addr (--master-addr), the address of node 0; under srun, "
			"remove launch.nodes",
			(long long)c->launch.nodes);
	if (c->launch.restarts > 0 && c->launch.nodes > 1 && c->launch.init[0] &&
	    ct__check_fine(k, "launch.restarts") && ct__check_fine(k, "launch.nodes"))
		ct__check_problem(
			k, "launch.restarts",
			"launch.restarts=%lld with several nodes requires ctrain's own store; set launch.master_addr instead of launch.init",
			(long long)c->launch.restarts);
	check_elastic(k);
	check_meeting(k);
	check_ports(k);
	check_devices(k);
	check_pipeline(k);
}
