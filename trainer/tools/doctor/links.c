/* The addresses of a node are tried in this order: the master address for node 0, the address from which the node
 * reaches the master, loopback within a network namespace, then the others. An address that this host has as well, such
 * as that of a bridge of containers, would lead to this host and is skipped, unless both nodes are in the same network
 * namespace. If no address answers, the error of the first one is kept. */
#include <stdio.h>
#include <string.h>

#include "dist/net/net.h"
#include "trainer/tools/doctor/links_impl.h"

struct attempt {
	const struct ct_cluster *c;
	int to, port;
	const char *nonce;
	double seconds;
	struct ct_link_facts *out;
};

static bool same_network(const struct attempt *a)
{
	const char *mine = a->c->nodes[a->c->self].net_key;

	return mine[0] && strcmp(mine, a->c->nodes[a->to].net_key) == 0;
}

/* An address that this host has, too, or that is meaningful only on its own host. */
static bool is_useless(const struct attempt *a, const char *addr)
{
	const struct ct_facts *me = &a->c->nodes[a->c->self];

	if (same_network(a))
		return false;
	if (ct_net_is_loopback(addr) || strncmp(addr, "fe80:", 5) == 0)
		return true;
	for (int64_t i = 0; i < me->n_addrs; i++) {
		if (strcmp(me->addrs[i].addr, addr) == 0)
			return true;
	}
	return false;
}

/* Keeps the error of the first address, which is the best one. */
static bool try_one(const struct attempt *a, const char *addr)
{
	struct ct_link_facts now;

	if (!addr[0] || is_useless(a, addr))
		return false;
	ct_probe_connect(addr, a->port, a->to, a->nonce, a->seconds, &now);
	if (now.reached || !a->out->tried)
		*a->out = now;
	return now.reached;
}

void ct__link_probe(const struct ct_cluster *c, int to, int port, const char nonce[CT_PROBE_NONCE], double seconds,
		    struct ct_link_facts *out)
{
	const struct attempt a = {.c = c, .to = to, .port = port, .nonce = nonce, .seconds = seconds, .out = out};
	const struct ct_facts *peer = &c->nodes[to];

	*out = (struct ct_link_facts){0};
	if (to == 0 && try_one(&a, c->nodes[c->self].master_addr))
		return;
	if (try_one(&a, peer->source) || (same_network(&a) && try_one(&a, ct_net_loopback())))
		return;
	for (int64_t i = 0; i < peer->n_addrs; i++) {
		if (peer->addrs[i].running && strcmp(peer->addrs[i].addr, peer->source) != 0 &&
		    try_one(&a, peer->addrs[i].addr))
			return;
	}
	if (!out->tried) {
		out->tried = true;
		snprintf(out->error, sizeof(out->error), "it has no address that other hosts can use");
	}
}
