/* Reads the links and shapes of a simulation. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/tools/estimate/simulate.h"

#define US 1e-6
#define GB 1e9
/* Latencies of NCCL for medium sizes (protocol LL128), and its fixed latency, from src/graph/tuning.cc. */
#define NCCL_BASE (14.0 * US)
#define NVLINK NCCL_BASE, 1.9 * US, 1.25 * US
#define PCIE NCCL_BASE, 2.5 * US, 1.9 * US
#define NET NCCL_BASE, 4.0 * US, 8.5 * US
/* Half the time of a small all-reduce of 2 ranks with gloo over TCP (docs/SCALING.md). */
#define TCP 0, 40 * US, 40 * US
/* With an MTU of 1500, 1448 of the 1538 bytes of an Ethernet frame are data of TCP. */
#define ETHERNET(gbit) ((gbit) / 8 * GB * 1448 / 1538)

enum { MAX_PORTS = 64 };

/* docs/SCALING.md has the sources. */
static const struct ct_sim_link table[] = {
	{"nvlink4", NVLINK, 370 * GB},       /* H100, H200 with NVSwitch: 18 links of 20.6 GB/s */
	{"nvlink3", NVLINK, 235 * GB},       /* A100 with NVSwitch */
	{"pcie5", PCIE, 48 * GB},            /* PCI Express 5.0 x16 */
	{"pcie4", PCIE, 24 * GB},            /* PCI Express 4.0 x16 */
	{"pcie3", PCIE, 12 * GB},            /* PCI Express 3.0 x16 */
	{"shm", 0, 1 * US, 1 * US, 20 * GB}, /* shared memory of a host; depends on its memory: measure it */
	{"ib400", NET, 47 * GB},             /* 400 Gb/s InfiniBand (NDR), one port */
	{"ib200", NET, 23.5 * GB},           /* 200 Gb/s InfiniBand (HDR), one port */
	{"roce100", NET, 12 * GB},           /* 100 Gb/s Ethernet with RDMA, one port */
	{"eth100", TCP, ETHERNET(100.0)},    /* 100 Gb/s Ethernet, TCP */
	{"eth25", TCP, ETHERNET(25.0)},      /* 25 Gb/s Ethernet, TCP */
	{"eth10", TCP, ETHERNET(10.0)},      /* 10 Gb/s Ethernet, TCP */
	{"eth1", TCP, ETHERNET(1.0)},        /* 1 Gb/s Ethernet, TCP */
};

const struct ct_sim_link *ct_sim_link_at(size_t i)
{
	return i < CT_ARRAY_LEN(table) ? &table[i] : NULL;
}

static enum ct_status unknown_link(const char *option, const char *text)
{
	struct ct_str names = {0};

	for (size_t i = 0; i < CT_ARRAY_LEN(table); i++)
		ct_str_addf(&names, "%s%s", i > 0 ? ", " : "", table[i].name);
	CT_FAIL(CT_USAGE,
		"%s %.40s: expected ALPHA_US,GBPS such as 30,1.17, or NAME[:PORTS] with 1 to %d ports and a name of: %s",
		option, text, MAX_PORTS, ct_str_text(&names));
	ct_str_release(&names);
	return CT_USAGE;
}

/* Reads a number that ends at the character `end`, and moves *text past it. */
static bool read_number(const char **text, char end, double *out)
{
	const size_t len = strcspn(*text, ",:");
	char word[32];

	if (len >= sizeof(word) || (*text)[len] != end)
		return false;
	memcpy(word, *text, len);
	word[len] = '\0';
	*text += len + (end != '\0');
	if (ct_parse_f64(word, out) < 0) {
		ct_error_clear();
		return false;
	}
	return *out >= 0 && *out < 1e9;
}

static bool parse_measured(const char *text, struct ct_sim_link *out)
{
	const char *p = text;
	double us, gbps;

	if (!read_number(&p, ',', &us) || !read_number(&p, '\0', &gbps) || gbps <= 0)
		return false;
	*out = (struct ct_sim_link){.ring_s = us * US, .tree_s = us * US, .bytes_per_s = gbps * GB};
	snprintf(out->name, sizeof(out->name), "%g us, %g GB/s", us, gbps);
	return true;
}

static bool parse_named(const char *text, struct ct_sim_link *out)
{
	const size_t len = strcspn(text, ":");
	const char *p = text + len + (text[len] == ':');
	double ports = 1;

	if (text[len] == ':' &&
	    (!read_number(&p, '\0', &ports) || ports < 1 || ports > MAX_PORTS || ports != (int)ports))
		return false;
	for (size_t i = 0; i < CT_ARRAY_LEN(table); i++) {
		if (strlen(table[i].name) != len || memcmp(table[i].name, text, len) != 0)
			continue;
		*out = table[i];
		out->bytes_per_s *= ports;
		snprintf(out->name, sizeof(out->name), "%.40s", text);
		return true;
	}
	return false;
}

enum ct_status ct_sim_link_parse(const char *option, const char *text, struct ct_sim_link *out)
{
	return parse_measured(text, out) || parse_named(text, out) ? CT_OK : unknown_link(option, text);
}

/* ---- shapes */

static enum ct_status bad_syntax(const char *option, const char *all)
{
	return CT_FAIL(CT_USAGE, "%s %.60s: expected shapes NODESxDEVICES such as 1x1,1x2,2x2, or a range 1x8..128x8",
		       option, all);
}

static enum ct_status too_many(const char *option, const char *all)
{
	return CT_FAIL(CT_USAGE, "%s %.60s: these are more than %d shapes", option, all, CT_SIM_MAX_SHAPES);
}

/* Reads "2x8" and moves *text past it. `all` is the complete value of the option. */
static enum ct_status read_shape(const char *option, const char *all, const char **text, struct ct_sim_shape *out)
{
	int len = 0;

	if (sscanf(*text, "%9dx%9d%n", &out->nodes, &out->devices, &len) != 2 || out->nodes < 1 || out->devices < 1)
		return bad_syntax(option, all);
	if (out->nodes > CT_SIM_MAX_RANKS / out->devices)
		return CT_FAIL(CT_USAGE, "%s %.60s: %dx%d has more than %d devices", option, all, out->nodes,
			       out->devices, CT_SIM_MAX_RANKS);
	*text += len;
	return CT_OK;
}

/* Adds the shapes after `from` up to `to`, in which one of the two numbers doubles. */
static enum ct_status add_range(const char *option, const char *all, struct ct_sim_shape from, struct ct_sim_shape to,
				struct ct_sim_shape *out, int *n)
{
	if (from.devices != to.devices && from.nodes != to.nodes)
		return CT_FAIL(CT_USAGE, "%s %.60s: in the range %dx%d..%dx%d, only one of the two numbers may change",
			       option, all, from.nodes, from.devices, to.nodes, to.devices);
	if (from.devices > to.devices || from.nodes > to.nodes)
		return CT_FAIL(CT_USAGE, "%s %.60s: the range %dx%d..%dx%d must begin with the smaller shape", option,
			       all, from.nodes, from.devices, to.nodes, to.devices);
	while (from.nodes < to.nodes || from.devices < to.devices) {
		if (from.nodes < to.nodes)
			from.nodes = 2 * from.nodes < to.nodes ? 2 * from.nodes : to.nodes;
		else
			from.devices = 2 * from.devices < to.devices ? 2 * from.devices : to.devices;
		if (*n == CT_SIM_MAX_SHAPES)
			return too_many(option, all);
		out[(*n)++] = from;
	}
	return CT_OK;
}

enum ct_status ct_sim_shapes_parse(const char *option, const char *text, struct ct_sim_shape out[CT_SIM_MAX_SHAPES],
				   int *n)
{
	const char *p = text;
	struct ct_sim_shape to;

	for (*n = 0; *n < CT_SIM_MAX_SHAPES; p++) {
		CT_TRY(read_shape(option, text, &p, &out[*n]));
		++*n;
		if (strncmp(p, "..", 2) == 0) {
			p += 2;
			CT_TRY(read_shape(option, text, &p, &to));
			CT_TRY(add_range(option, text, out[*n - 1], to, out, n));
		}
		if (*p == '\0')
			return CT_OK;
		if (*p != ',')
			return bad_syntax(option, text);
	}
	return too_many(option, text);
}
