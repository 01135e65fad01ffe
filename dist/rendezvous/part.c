#include "base/mem.h"
#include "dist/rendezvous/rendezvous.h"

static int count_hosts(const struct ct_peer *peers, int n)
{
	int n_hosts = 0;

	for (int q = 0; q < n; q++) {
		bool seen = false;

		for (int r = 0; r < q && !seen; r++)
			seen = peers[r].node == peers[q].node;
		n_hosts += !seen;
	}
	return n_hosts;
}

enum ct_status ct_world_part(const struct ct_world *w, const int *which, int value, struct ct_world *out)
{
	*out = (struct ct_world){.store = w->store, .watched = w->watched};
	out->id.restart = w->id.restart;
	CT_TRY_ALLOC(out->peers = CT_NEW_ARRAY(struct ct_peer, (size_t)w->id.world));
	for (int q = 0; q < w->id.world; q++) {
		if (which[q] != value)
			continue;
		if (q == w->id.rank)
			out->id.rank = out->id.world;
		out->peers[out->id.world++] = w->peers[q];
	}
	out->n_hosts = count_hosts(out->peers, out->id.world);
	return CT_OK;
}
