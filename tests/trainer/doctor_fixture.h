/* Three nodes without faults, for tests of doctor. */
#ifndef CT_TESTS_TRAINER_DOCTOR_FIXTURE_H
#define CT_TESTS_TRAINER_DOCTOR_FIXTURE_H

#include "tests/trainer/tmpdir.h"

#include "trainer/tools/doctor/facts.h"

enum { N = 3, MIB = 1 << 20 };

struct planted {
	struct ct_facts nodes[N];
	struct ct_link_facts links[N * N];
	struct ct_cluster cluster;
};

#define SET(field, ...) snprintf(field, sizeof(field), __VA_ARGS__)

static inline void add_addr(struct ct_facts *f, const char *iface, const char *addr)
{
	struct ct_addr_facts *a = &f->addrs[f->n_addrs++];

	SET(a->iface, "%s", iface);
	SET(a->addr, "%s", addr);
	a->running = true;
	a->ipv6 = strchr(addr, ':') != NULL;
	a->mtu = strcmp(iface, "lo") == 0 ? 65536 : 1500;
}

static inline void make_node(struct ct_facts *f, int i)
{
	*f = (struct ct_facts){
		.present = true,
		.node = i,
		.n_nodes = N,
		.ranks = 2,
		.slurm_node = -1,
		.master_here = i == 0,
		.master_ipv4 = true,
		.resolve_s = 0.01,
		.port = 29400,
		.open_files = 1024,
		.open_files_most = 4096,
		.open_files_needed = 40,
		.locked_bytes = INT64_MAX,
		.shm_bytes = 64 * MIB,
		.shm_needed = 16 * MIB,
		.run_free_bytes = (int64_t)1000 * MIB,
		.run_needed_bytes = 100 * MIB,
		.run_mib_per_s = 500,
		.data_mib_per_s = 500,
		.run_sharing = i == 0 ? CT_SHARING_UNKNOWN : CT_SHARING_YES,
		.cpus = 8,
		.threads = 4,
		.memory_bytes = (int64_t)1 << 34,
		.gpus_wanted = 2,
		.gpus_visible = 8,
		.gpus_driver = 8,
		.gpus_pci = 8,
	};
	SET(f->host, "host%c", 'a' + i);
	SET(f->net_key, "boot %d", i);
	SET(f->version, "1.0");
	SET(f->build, "1.0-abc");
	SET(f->libraries, "oneDNN 3.1");
	SET(f->config, "1234");
	SET(f->launcher, "none");
	SET(f->own_addr, "10.0.0.%d", 1 + i);
	SET(f->master, "hosta");
	SET(f->master_addr, "10.0.0.1");
	SET(f->source, "10.0.0.%d", 1 + i);
	SET(f->device, "cuda");
	SET(f->run_dir, "runs/one");
	add_addr(f, "lo", "127.0.0.1");
	add_addr(f, "eth0", f->own_addr);
}

static inline void make_healthy(struct planted *p)
{
	*p = (struct planted){.cluster = {.nodes = p->nodes, .links = p->links, .n = N}};
	for (int i = 0; i < N; i++)
		make_node(&p->nodes[i], i);
	for (int i = 0; i < N * N; i++) {
		if (i / N == i % N)
			continue;
		p->links[i] = (struct ct_link_facts){.tried = true, .reached = true, .rtt_ms = 0.1, .mib_per_s = 1000};
		SET(p->links[i].addr, "10.0.0.%d", 1 + i % N);
	}
}

#endif
