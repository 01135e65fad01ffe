#include "trainer/plan/topology.h"

#include <string.h>

#include "base/cpu/cgroup.h"
#include "base/mem.h"

/* Keeps n CPUs, whose cores may have any numbers, and counts cores and nodes. */
static void count(struct ct_topology *t, int n)
{
	int core = -1, node = -1;

	t->n = n;
	t->n_cores = t->n_nodes = 0;
	for (int i = 0; i < n; i++) {
		struct ct_topology_cpu *c = &t->cpus[i];

		t->n_cores += i == 0 || c->core != core;
		t->n_nodes += i == 0 || c->node != node;
		core = c->core;
		node = c->node;
		c->core = t->n_cores - 1;
	}
}

void ct_topology_restrict(struct ct_topology *t, const struct ct_cpu_set *allowed)
{
	int n = 0;

	for (int i = 0; i < t->n; i++) {
		if (ct_cpu_set_has(allowed, t->cpus[i].cpu))
			t->cpus[n++] = t->cpus[i];
	}
	count(t, n);
}

/* The file contains a list such as "0-1". */
bool ct_topology_is_numa(void)
{
	char nodes[256];

	ct_cgroup_read("/sys/devices/system/node/has_cpu", nodes, sizeof(nodes));
	return strpbrk(nodes, "-,") != NULL;
}

#ifdef CT_WITH_HWLOC

#include <hwloc.h>

const char *ct_topology_library(void)
{
	return "hwloc " HWLOC_VERSION;
}

static int node_of(const struct hwloc_obj *obj)
{
	return obj->nodeset ? hwloc_bitmap_first(obj->nodeset) : -1;
}

/* Components that add nothing to what the kernel reports: x86 would move this thread to every CPU, pci would read the
 * devices with a library that does not free its memory, and opencl would start the drivers of GPUs. Those that hwloc
 * was built without cannot be switched off, which is no error. The descriptions of caches are not needed, either. */
static bool load(hwloc_topology_t t, bool with_pci)
{
	static const char *const useless[] = {"x86", "pci", "opencl"};

	for (size_t i = 0; i < CT_ARRAY_LEN(useless); i++)
		(void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, useless[i]);
	return hwloc_topology_set_cache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
	       hwloc_topology_set_icache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
	       (!with_pci || hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0) &&
	       hwloc_topology_load(t) == 0;
}

enum ct_status ct_topology_open(bool with_pci, struct ct_topology *out)
{
	hwloc_topology_t t;

	*out = (struct ct_topology){0};
	if (hwloc_topology_init(&t) != 0)
		return CT_NOMEM;
	out->hwloc = t;
	if (!load(t, with_pci)) {
		ct_topology_close(out);
		return CT_FAIL(CT_UNSUPPORTED, "hwloc cannot read the topology of this machine");
	}
	out->foreign = !hwloc_topology_is_thissystem(t);
	const int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
	if (!(out->cpus = CT_NEW_ARRAY(struct ct_topology_cpu, (size_t)n))) {
		ct_topology_close(out);
		return CT_NOMEM;
	}
	int known = 0;
	for (int i = 0; i < n; i++) {
		const struct hwloc_obj *pu = hwloc_get_obj_by_type(t, HWLOC_OBJ_PU, (unsigned)i),
				       *core = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_CORE, (hwloc_obj_t)pu);

		if (pu->os_index < CT_CPUS_MAX)
			out->cpus[known++] = (struct ct_topology_cpu){
				.cpu = (int)pu->os_index,
				.core = core ? (int)core->logical_index : i, /* some virtual machines hide cores */
				.node = node_of(pu),
			};
	}
	count(out, known);
	return CT_OK;
}

void ct_topology_close(struct ct_topology *t)
{
	ct_free(t->cpus);
	if (t->hwloc)
		hwloc_topology_destroy(t->hwloc);
	*t = (struct ct_topology){0};
}

int ct_topology_node_near(const struct ct_topology *t, const char *bus)
{
	const hwloc_obj_t pci = hwloc_get_pcidev_by_busidstring(t->hwloc, bus),
			  near = pci ? hwloc_get_non_io_ancestor_obj(t->hwloc, pci) : NULL;

	return near && near->nodeset && hwloc_bitmap_weight(near->nodeset) == 1 ? node_of(near) : -1;
}

void ct_topology_prefer_memory(const struct ct_topology *t, int node)
{
	const hwloc_obj_t numa = hwloc_get_numanode_obj_by_os_index(t->hwloc, (unsigned)node);
	hwloc_bitmap_t now = hwloc_bitmap_alloc();
	hwloc_membind_policy_t policy;

	/* Without HWLOC_MEMBIND_STRICT, memory of other nodes is used if this one has none left. */
	if (numa && now &&
	    hwloc_get_membind(t->hwloc, now, &policy, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0 &&
	    policy == HWLOC_MEMBIND_FIRSTTOUCH)
		(void)hwloc_set_membind(t->hwloc, numa->nodeset, HWLOC_MEMBIND_BIND,
					HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
	hwloc_bitmap_free(now);
}

#else

const char *ct_topology_library(void)
{
	return NULL;
}

enum ct_status ct_topology_open(bool with_pci, struct ct_topology *out)
{
	(void)with_pci;
	*out = (struct ct_topology){0};
	return CT_FAIL(CT_UNSUPPORTED, "ctrain was built without hwloc");
}

void ct_topology_close(struct ct_topology *t)
{
	(void)t;
}

int ct_topology_node_near(const struct ct_topology *t, const char *bus)
{
	(void)t;
	(void)bus;
	return -1;
}

void ct_topology_prefer_memory(const struct ct_topology *t, int node)
{
	(void)t;
	(void)node;
}

#endif
