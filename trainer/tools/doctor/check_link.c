/* Connections between the nodes: links[i][k] is what node i found when it connected to node k. The speeds have no fixed
 * limit; a link is slow in comparison to the median of all links, so a slow network that is the same for all nodes is
 * not reported. Clocks are compared with that of node 0, less the round-trip time, within which the answer may have
 * been given at any moment. The two directions of a link are separate facts, because firewalls often block only one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tools/doctor/checks_impl.h"

#define SLOW_LINK 0.2 /* of the median speed */
#define MAX_CLOCK_S 1.0

static const struct ct_link_facts *link_at(const struct ct_cluster *c, int from, int to)
{
	return &c->links[from * c->n + to];
}

void ct__check_port(const struct ct_facts *n, struct ct_findings *out)
{
	if (!n->port_error[0])
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, n);

	ct_finding_what(f, "%s", n->port_error);
	ct_finding_why(f, "node 0 waits for the other nodes on port %lld", (long long)n->port);
	ct_finding_fix(f, "choose another port on all nodes (--master-port %lld), or end the program that uses it",
		       (long long)(n->port < 65535 ? n->port + 1 : n->port - 1));
}

/* The advice that follows from the error of connect. */
static void explain_unreached(struct ct_finding *f, const struct ct_link_facts *l, const struct ct_facts *to)
{
	const char *container = ct__container_advice(to);

	if (l->reason == CT_REASON_NO_ROUTE)
		ct_finding_fix(
			f,
			"%scheck the route: ip route get %s; if this address is not meant for training, set dist.iface to the interface that is",
			container, l->addr);
	else if (l->reason == CT_REASON_REJECTED)
		ct_finding_fix(
			f,
			"%sa firewall on %s rejects the connection: allow TCP from all nodes, for example nft insert rule inet filter input ip saddr NETWORK accept",
			container, to->host);
	else
		ct_finding_fix(
			f,
			"%sa firewall drops the packets, or the address is not reachable from here: allow TCP from all nodes on %s (nft list ruleset, iptables -L), and check `ip route get %s`",
			container, to->host, l->addr);
}

void ct__check_reach(const struct ct_cluster *c, struct ct_findings *out)
{
	for (int i = 0; i < c->n && c->links; i++) {
		for (int k = 0; k < c->n; k++) {
			const struct ct_link_facts *l = link_at(c, i, k);
			const struct ct_facts *from = &c->nodes[i], *to = &c->nodes[k];

			if (i == k || !l->tried || l->reached)
				continue;
			struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, from);

			ct_finding_what(f, "this node cannot connect to node %d (%s) at %s: %s%s", k, to->host, l->addr,
					l->error, link_at(c, k, i)->reached ? "; the other direction works" : "");
			ct_finding_why(f, "the ranks of these nodes exchange gradients over direct connections");
			explain_unreached(f, l, to);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median speed of all links, or 0 if fewer than 2 were measured. */
static double median_speed(const struct ct_cluster *c)
{
	const size_t all = (size_t)c->n * (size_t)c->n;
	double *v = CT_NEW_ARRAY(double, all), median = 0;
	size_t n = 0;

	for (size_t i = 0; v && c->links && i < all; i++) {
		if (c->links[i].mib_per_s > 0)
			v[n++] = c->links[i].mib_per_s;
	}
	if (n >= 2) {
		qsort(v, n, sizeof(*v), by_value);
		median = v[n / 2];
	}
	ct_free(v);
	return median;
}

void ct__check_bandwidth(const struct ct_cluster *c, struct ct_findings *out)
{
	const double median = median_speed(c);

	for (int i = 0; i < c->n && median > 0; i++) {
		for (int k = 0; k < c->n; k++) {
			const struct ct_link_facts *l = link_at(c, i, k);

			if (l->mib_per_s <= 0 || l->mib_per_s >= SLOW_LINK * median)
				continue;
			struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_COMM, &c->nodes[i]);

			ct_finding_what(
				f,
				"this node sends %.0f MiB/s to node %d (%s), but the median of all links is %.0f MiB/s",
				l->mib_per_s, k, c->nodes[k].host, median);
			ct_finding_why(f, "all ranks wait for the slowest link in every step");
			ct_finding_fix(
				f,
				"compare `ethtool IFACE | grep Speed` and `ip -s link` on both nodes, and check that dist.iface selects the fast interface");
		}
	}
}

static int64_t mtu_of(const struct ct_facts *n)
{
	for (int64_t i = 0; i < n->n_addrs; i++) {
		if (n->source[0] && strcmp(n->addrs[i].addr, n->source) == 0)
			return n->addrs[i].mtu;
	}
	return 0;
}

void ct__check_mtu(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	const int64_t mtu = mtu_of(n), wanted = mtu_of(first);

	/* Loopback interfaces, when two nodes share a host. */
	if (mtu <= 0 || wanted <= 0 || mtu == wanted || mtu > 60000 || wanted > 60000)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_COMM, n);

	ct_finding_what(f, "the MTU of the interface with %s is %lld, but that of node 0 (%s) is %lld", n->source,
			(long long)mtu, first->host, (long long)wanted);
	ct_finding_why(
		f, "where a switch drops large packets, connections open but then hang with the first large message");
	ct_finding_fix(f, "ip link set dev IFACE mtu %lld, on the node with the wrong value",
		       (long long)(mtu < wanted ? mtu : wanted));
}

void ct__check_clock(const struct ct_cluster *c, struct ct_findings *out)
{
	for (int k = 1; k < c->n && c->links; k++) {
		const struct ct_link_facts *l = link_at(c, 0, k);
		/* The time of the answer is known only to the round-trip time. */
		const double least = fabs(l->ahead_s) - l->rtt_ms * 1e-3;

		if (!l->reached || least < MAX_CLOCK_S)
			continue;
		struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_IO, &c->nodes[k]);

		ct_finding_what(f, "the clock of this node is %.1f s %s that of node 0 (%s)", fabs(l->ahead_s),
				l->ahead_s > 0 ? "ahead of" : "behind", c->nodes[0].host);
		ct_finding_why(
			f,
			"times in logs of different nodes cannot be compared, and file systems and certificates may reject the node");
		ct_finding_fix(f, "chronyc makestep; or enable a time service: systemctl enable --now chrony");
	}
}
