/* The cores and NUMA nodes of this machine. */
#ifndef CT_TRAINER_PLAN_TOPOLOGY_H
#define CT_TRAINER_PLAN_TOPOLOGY_H

#include "base/thread.h"

/* A hardware thread. */
struct ct_topology_cpu {
	int cpu;  /* number in the system, less than CT_CPUS_MAX */
	int core; /* 0 to n_cores - 1 */
	int node; /* number of its NUMA node in the system */
};

/* The CPUs are in an order in which those of a core, and those of a NUMA node, follow each other. */
struct ct_topology {
	struct ct_topology_cpu *cpus; /* [n], by ascending core */
	int n, n_cores, n_nodes;
	bool foreign; /* another machine, which HWLOC_SYNTHETIC or HWLOC_XMLFILE describes */
	void *hwloc;
};

/* Returns the version with which ctrain was built, "hwloc 2.9.0", or NULL if it was built without hwloc. */
const char *ct_topology_library(void);
/* Returns true if this machine has several NUMA nodes with CPUs. This takes much less time than ct_topology_open. */
bool ct_topology_is_numa(void);
/* Reads the topology, with the CPUs that the control group of this process may use. with_pci also finds PCI devices,
 * which takes longer. Fails with CT_UNSUPPORTED if ctrain was built without hwloc, or if hwloc fails. */
enum ct_status ct_topology_open(bool with_pci, struct ct_topology *out) CT_MUST_CHECK;
void ct_topology_close(struct ct_topology *t); /* does nothing if the struct is zeroed */
/* Removes the CPUs that are not in the set. */
void ct_topology_restrict(struct ct_topology *t, const struct ct_cpu_set *allowed);
/* Returns the NUMA node of a PCI device, such as "0000:3b:00.0", or -1 if there is not exactly one. */
int ct_topology_node_near(const struct ct_topology *t, const char *bus);
/* Makes the calling thread, and those that it starts, allocate memory on this node as long as it has any. If the
 * process has a memory policy already, for example from numactl, or may not set one, nothing changes. */
void ct_topology_prefer_memory(const struct ct_topology *t, int node);

#endif
