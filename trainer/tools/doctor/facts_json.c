/* Facts are plain structs, and a table of their members, made by _Generic and offsetof, writes and reads them. A member
 * that is missing in the table is not exchanged and remains zero on other nodes. Reading checks types and the lengths
 * of lists, because facts come from other hosts; strings are cut to their fields. All members are required. */
#include "trainer/tools/doctor/facts_json.h"

#include <stddef.h>
#include <stdio.h>

enum kind { INTEGER, REAL, BOOLEAN, TEXT };

struct member {
	const char *name;
	enum kind kind;
	size_t offset, size;
};

/* clang-format off */
#define KIND(v) _Generic((v), int64_t: INTEGER, double: REAL, bool: BOOLEAN, char *: TEXT)
#define MEMBER(type, m)                                                                                              \
	{                                                                                                            \
		#m, KIND(((struct type *)NULL)->m), offsetof(struct type, m), sizeof(((struct type *)NULL)->m)       \
	}

static const struct member facts_members[] = {
#define M(m) MEMBER(ct_facts, m)
	M(present), M(node), M(n_nodes), M(ranks), M(host), M(net_key),
	M(version), M(build), M(libraries), M(config), M(nccl_defect), M(nccl_remedy),
	M(launcher), M(tasks_here), M(slurm_node), M(asks_for_ranks),
	M(own_addr), M(master), M(master_addr), M(master_error), M(master_here), M(master_ipv4), M(master_ipv6), M(resolve_s),
	M(source), M(port), M(port_error),
	M(open_files), M(open_files_most), M(open_files_needed), M(locked_bytes), M(shm_bytes), M(shm_needed), M(in_container),
	M(run_dir), M(run_error), M(data_error), M(data_status), M(run_free_bytes), M(run_needed_bytes), M(run_mib_per_s), M(data_mib_per_s),
	M(run_sharing),
	M(cpus), M(threads), M(memory_bytes), M(binding),
	M(device), M(device_error), M(device_hint), M(gpus_wanted), M(gpus_visible), M(gpus_driver), M(gpus_pci), M(lost_slots),
	M(xid), M(visible_devices),
#undef M
};

static const struct member addr_members[] = {
	MEMBER(ct_addr_facts, iface), MEMBER(ct_addr_facts, addr), MEMBER(ct_addr_facts, running),
	MEMBER(ct_addr_facts, ipv6),  MEMBER(ct_addr_facts, mtu),
};

static const struct member setting_members[] = {
	MEMBER(ct_setting_facts, name),
	MEMBER(ct_setting_facts, why),
	MEMBER(ct_setting_facts, hint),
	MEMBER(ct_setting_facts, wrong),
};

static const struct member name_members[] = {MEMBER(ct_name_facts, name), MEMBER(ct_name_facts, meant)};

static const struct member link_members[] = {
	MEMBER(ct_link_facts, tried),  MEMBER(ct_link_facts, reached), MEMBER(ct_link_facts, addr),
	MEMBER(ct_link_facts, error),  MEMBER(ct_link_facts, rtt_ms),  MEMBER(ct_link_facts, ahead_s),
	MEMBER(ct_link_facts, mib_per_s), MEMBER(ct_link_facts, reason),
};
/* clang-format on */

static ct_json *write_members(const struct member *all, size_t n, const void *base)
{
	ct_json *o = ct_json_object();

	for (size_t i = 0; i < n; i++) {
		const void *p = (const char *)base + all[i].offset;

		switch (all[i].kind) {
		case INTEGER:
			ct_json_set_i64(o, all[i].name, *(const int64_t *)p);
			break;
		case REAL:
			ct_json_set_f64(o, all[i].name, *(const double *)p);
			break;
		case BOOLEAN:
			ct_json_set_bool(o, all[i].name, *(const bool *)p);
			break;
		case TEXT:
			ct_json_set_str(o, all[i].name, p);
			break;
		}
	}
	return o;
}

static enum ct_status read_members(const ct_json *o, const struct member *all, size_t n, void *base)
{
	const char *text;

	for (size_t i = 0; i < n; i++) {
		void *p = (char *)base + all[i].offset;

		switch (all[i].kind) {
		case INTEGER:
			CT_TRY(ct_json_get_i64(o, all[i].name, p));
			break;
		case REAL:
			CT_TRY(ct_json_get_f64(o, all[i].name, p));
			break;
		case BOOLEAN:
			CT_TRY(ct_json_get_bool(o, all[i].name, p));
			break;
		case TEXT:
			CT_TRY(ct_json_get_str(o, all[i].name, &text));
			snprintf(p, all[i].size, "%s", text);
			break;
		}
	}
	return CT_OK;
}

static ct_json *write_list(const struct member *all, size_t n, const void *items, size_t size, int64_t count)
{
	ct_json *a = ct_json_array();

	for (int64_t i = 0; i < count; i++)
		ct_json_push(a, write_members(all, n, (const char *)items + (size_t)i * size));
	return a;
}

static enum ct_status read_list(const ct_json *a, const struct member *all, size_t n, void *items, size_t size,
				int64_t most, int64_t *count)
{
	if (!ct_json_is_array(a) || (int64_t)ct_json_len(a) > most)
		return CT_FAIL(CT_DATA, "the facts of a node have a list that is missing or too long");
	for (size_t i = 0; i < ct_json_len(a); i++)
		CT_TRY(read_members(ct_json_at(a, i), all, n, (char *)items + i * size));
	*count = (int64_t)ct_json_len(a);
	return CT_OK;
}

ct_json *ct_facts_json(const struct ct_facts *f)
{
	ct_json *o = write_members(facts_members, CT_ARRAY_LEN(facts_members), f);

	ct_json_set(o, "addrs",
		    write_list(addr_members, CT_ARRAY_LEN(addr_members), f->addrs, sizeof(f->addrs[0]), f->n_addrs));
	ct_json_set(o, "settings",
		    write_list(setting_members, CT_ARRAY_LEN(setting_members), f->settings, sizeof(f->settings[0]),
			       f->n_settings));
	ct_json_set(o, "names",
		    write_list(name_members, CT_ARRAY_LEN(name_members), f->names, sizeof(f->names[0]), f->n_names));
	return o;
}

enum ct_status ct_facts_parse(const ct_json *j, struct ct_facts *out)
{
	*out = (struct ct_facts){0};
	CT_TRY(read_members(j, facts_members, CT_ARRAY_LEN(facts_members), out));
	CT_TRY(read_list(ct_json_get(j, "addrs"), addr_members, CT_ARRAY_LEN(addr_members), out->addrs,
			 sizeof(out->addrs[0]), CT_FACTS_ADDRS, &out->n_addrs));
	CT_TRY(read_list(ct_json_get(j, "settings"), setting_members, CT_ARRAY_LEN(setting_members), out->settings,
			 sizeof(out->settings[0]), CT_FACTS_SETTINGS, &out->n_settings));
	return read_list(ct_json_get(j, "names"), name_members, CT_ARRAY_LEN(name_members), out->names,
			 sizeof(out->names[0]), CT_FACTS_NAMES, &out->n_names);
}

ct_json *ct_link_json(const struct ct_link_facts *l)
{
	return write_members(link_members, CT_ARRAY_LEN(link_members), l);
}

enum ct_status ct_link_parse(const ct_json *j, struct ct_link_facts *out)
{
	*out = (struct ct_link_facts){0};
	return read_members(j, link_members, CT_ARRAY_LEN(link_members), out);
}
