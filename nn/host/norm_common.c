#include "nn/host/host.h"

enum ct_status ct_norm_sync(const ct_net *net, const struct ct_node *node, double *v, size_t n)
{
	if (!net->opts.sync)
		return CT_OK;
	enum ct_status st = net->opts.sync(net->opts.sync_user, v, n, net->engine->stream);
	if (st < 0)
		ct_error_wrap("%s: summing the statistics of all ranks", node->name);
	return st;
}

enum ct_status ct_norm_check_count(const struct ct_node *node, double count)
{
	if (count >= 2)
		return CT_OK;
	CT_FAIL(CT_CONFIG, "%s: batch norm has only one value per channel in a batch of one row", node->name);
	return ct_error_hint("use at least 2 samples in every batch, counting all ranks (batch.per_rank)");
}
