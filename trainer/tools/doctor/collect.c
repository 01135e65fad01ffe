#include "trainer/tools/doctor/collect.h"

#include "trainer/tools/doctor/collect_impl.h"

void ct_facts_collect(const struct ct_collect_opts *o, struct ct_facts *out)
{
	*out = (struct ct_facts){
		.present = true,
		.node = o->ranks.node,
		.n_nodes = o->ranks.n_nodes,
		.ranks = o->ranks.local,
		.asks_for_ranks = o->asks_for_ranks,
	};
	ct__collect_devices(o, out);
	ct__collect_host(o, out); /* needs the device */
	ct__collect_launch(o, out);
	ct__collect_net(o, out); /* needs the host name */
	ct__collect_storage(o, out);
}
