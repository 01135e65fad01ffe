/* Names and addresses of the nodes. A loopback address as the master is right if all nodes are on one host, so the
 * literal address is accepted, and only a name that stands for one on another node than node 0 is wrong. Equal
 * addresses on two nodes are an error if one of the nodes uses the address towards the master; otherwise they belong to
 * a bridge or the like. If both nodes use another interface towards the master, gloo does, too. NCCL chooses by itself,
 * but not a bridge of docker. Nodes in the same network namespace and link-local
 * addresses are not compared. The advice names an address that can be pasted, where a node has one that fits. */
#include <string.h>

#include "dist/net/net.h"
#include "trainer/tools/doctor/checks_impl.h"

#define SLOW_RESOLVER_S 1.0

/* The first address that other nodes can probably use, or "". */
static const char *usable_address(const struct ct_facts *n)
{
	if (n->source[0] && !ct_net_is_loopback(n->source))
		return n->source;
	for (int64_t i = 0; i < n->n_addrs; i++) {
		if (n->addrs[i].running && !ct_net_is_loopback(n->addrs[i].addr))
			return n->addrs[i].addr;
	}
	return "";
}

/* Node 0, or NULL if only another node is judged. */
static const struct ct_facts *first_node(const struct ct_cluster *c)
{
	return c->nodes[0].present && c->nodes[0].node == 0 ? &c->nodes[0] : NULL;
}

static const char *first_address(const struct ct_cluster *c)
{
	const struct ct_facts *first = first_node(c);

	return first && usable_address(first)[0] ? usable_address(first) : "ADDRESS_OF_NODE_0";
}

bool ct__master_is_literal_loopback(const struct ct_facts *n)
{
	return strcmp(n->master, "localhost") == 0 || ct_net_is_loopback(n->master);
}

/* A name that stands for a loopback address on a node other than node 0. The loopback address itself is correct if all
 * nodes are on one host. */
static bool hides_loopback(const struct ct_facts *n)
{
	return n->node > 0 && n->master_addr[0] && ct_net_is_loopback(n->master_addr) &&
	       !ct__master_is_literal_loopback(n);
}

bool ct__master_is_wrong(const struct ct_facts *n)
{
	if (n->n_nodes == 1 || !n->master[0])
		return false;
	return n->master_error[0] || (n->node == 0 && !n->master_here) || hides_loopback(n);
}

const char *ct__container_advice(const struct ct_facts *n)
{
	return n->in_container ? "start its container with --network host; if it was, " : "";
}

static void check_unresolved(const struct ct_facts *n, const char *address, struct ct_findings *out)
{
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, n);

	ct_finding_what(f, "the master address %s has no address here: %s", n->master, n->master_error);
	ct_finding_why(f, "this node cannot connect to node 0");
	ct_finding_fix(
		f,
		"pass the address of node 0 on all nodes (--master-addr %s), or add it to /etc/hosts: echo '%s %s' >> /etc/hosts",
		address, address, n->master);
}

void ct__check_master(const struct ct_cluster *c, struct ct_findings *out)
{
	for (int i = 0; i < c->n; i++) {
		const struct ct_facts *n = &c->nodes[i];

		if (!n->present || !ct__master_is_wrong(n))
			continue;
		if (n->master_error[0]) {
			check_unresolved(n, first_address(c), out);
		} else if (n->node == 0) {
			struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_USAGE, n);

			ct_finding_what(f,
					"this is node 0, but the master address %s (%s) is not an address of this host",
					n->master, n->master_addr);
			ct_finding_why(f, "the other nodes connect to %s, where no rank waits for them",
				       n->master_addr);
			ct_finding_fix(
				f,
				"%spass --master-addr %s on all nodes, or start this node with the rank that belongs to it",
				ct__container_advice(n),
				usable_address(n)[0] ? usable_address(n) : "ADDRESS_OF_THIS_HOST");
		}
	}
}

static void master_loopback(const struct ct_facts *n, const char *address, struct ct_findings *out)
{
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, n);

	ct_finding_what(f, "the master address %s stands for %s, a loopback address", n->master, n->master_addr);
	ct_finding_why(f, "this node would connect to itself instead of node 0");
	ct_finding_fix(f, "pass --master-addr %s on all nodes, or correct the line in /etc/hosts to: %s %s", address,
		       address, n->master);
}

void ct__check_loopback(const struct ct_cluster *c, struct ct_findings *out)
{
	for (int i = 0; i < c->n; i++) {
		const struct ct_facts *n = &c->nodes[i];

		if (!n->present || n->n_nodes == 1)
			continue;
		/* On node 0, the store listens on all interfaces. */
		if (hides_loopback(n)) {
			master_loopback(n, first_address(c), out);
		} else if (n->own_addr[0] && ct_net_is_loopback(n->own_addr) && usable_address(n)[0]) {
			struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_COMM, n);

			ct_finding_what(f, "the name of this host, %s, stands for %s here", n->host, n->own_addr);
			ct_finding_why(
				f,
				"programs that publish the address of their own name (gloo, MPI) send a loopback address to other hosts: \"connect [%s]: Connection refused\"; ctrain does not",
				n->own_addr);
			ct_finding_fix(
				f,
				"move the name to the right address: sed -i '/^127[.]/s/\\b%s\\b//; $a %s %s' /etc/hosts",
				n->host, usable_address(n), n->host);
		}
	}
}

static void families_of(const struct ct_facts *n, bool *v4, bool *v6)
{
	*v4 = *v6 = false;
	for (int64_t i = 0; i < n->n_addrs; i++) {
		if (!n->addrs[i].running || ct_net_is_loopback(n->addrs[i].addr))
			continue;
		if (n->addrs[i].ipv6)
			*v6 = true;
		else
			*v4 = true;
	}
}

void ct__check_family(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out)
{
	bool v4, v6, first4, first6;

	families_of(n, &v4, &v6);
	families_of(first, &first4, &first6);
	if (!v4 && !v6)
		return;
	const bool common = (v4 && first4) || (v6 && first6);
	const bool master_fits = !n->master_addr[0] || (n->master_ipv4 && v4) || (n->master_ipv6 && v6);

	if (common && master_fits)
		return;
	const char *mine = v4 ? "IPv4" : "IPv6";
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_ERROR, CT_COMM, n);

	if (!common)
		ct_finding_what(f, "this node has only %s addresses, node 0 (%s) only %s addresses", mine, first->host,
				first4 ? "IPv4" : "IPv6");
	else
		ct_finding_what(f, "the master address %s stands for %s, but this node has only %s addresses",
				n->master, n->master_addr, mine);
	ct_finding_why(f, "the nodes cannot connect to each other: \"Network is unreachable\"");
	if (!common)
		ct_finding_fix(f, "add an %s address to this node: ip addr add ADDRESS dev IFACE",
			       first4 ? "IPv4" : "IPv6");
	else
		ct_finding_fix(f, "pass an %s address of node 0 to --master-addr on all nodes", mine);
}

/* Link-local addresses need not be unique. */
static bool is_compared(const struct ct_addr_facts *a)
{
	return a->running && !ct_net_is_loopback(a->addr) && strncmp(a->addr, "fe80:", 5) != 0;
}

static void compare_addresses(const struct ct_facts *a, const struct ct_facts *b, struct ct_findings *out)
{
	for (int64_t i = 0; i < a->n_addrs; i++) {
		for (int64_t k = 0; k < b->n_addrs; k++) {
			const struct ct_addr_facts *x = &a->addrs[i], *y = &b->addrs[k];

			if (!is_compared(x) || !is_compared(y) || strcmp(x->addr, y->addr) != 0)
				continue;
			const bool used = strcmp(x->addr, a->source) == 0 || strcmp(y->addr, b->source) == 0;
			const bool avoided = a->source[0] && b->source[0] &&
					     (strcmp(b->device, "cuda") != 0 || strncmp(y->iface, "docker", 6) == 0);
			struct ct_finding *f = ct_finding_add(out,
							      used      ? CT_FINDING_ERROR
							      : avoided ? CT_FINDING_NOTE
									: CT_FINDING_WARNING,
							      CT_COMM, b);

			ct_finding_what(f, "%s has the address %s, which %s of node %d (%s) has, too", y->iface,
					y->addr, x->iface, (int)a->node, a->host);
			ct_finding_why(
				f,
				used ? "connections to this address reach one of the two nodes by chance"
				: avoided
					? "ctrain uses another interface; another library that chooses this one connects to its own host"
					: "a library that chooses this interface connects to its own host instead of the other node");
			if (used)
				ct_finding_fix(
					f,
					"%sgive one of the nodes another address: ip addr del %s dev %s; ip addr add ADDRESS dev %s",
					ct__container_advice(b), y->addr, y->iface, y->iface);
			else
				ct_finding_fix(
					f,
					"export NCCL_SOCKET_IFNAME=^%s,lo on all nodes, and set dist.iface to the interface that connects the nodes",
					y->iface);
		}
	}
}

void ct__check_duplicates(const struct ct_cluster *c, struct ct_findings *out)
{
	for (int i = 0; i < c->n; i++) {
		for (int k = i + 1; k < c->n; k++) {
			const struct ct_facts *a = &c->nodes[i], *b = &c->nodes[k];

			if (a->present && b->present && strcmp(a->net_key, b->net_key) != 0)
				compare_addresses(a, b, out);
		}
	}
}

void ct__check_resolver(const struct ct_facts *n, struct ct_findings *out)
{
	if (n->resolve_s < SLOW_RESOLVER_S)
		return;
	struct ct_finding *f = ct_finding_add(out, CT_FINDING_WARNING, CT_COMM, n);

	ct_finding_what(f, "looking up the names %s and %s took %.1f s", n->host, n->master, n->resolve_s);
	ct_finding_why(f, "every rank looks up names when it starts and reconnects");
	ct_finding_fix(
		f,
		"pass numeric addresses (--master-addr), add the nodes to /etc/hosts, or repair the name servers in /etc/resolv.conf");
}
