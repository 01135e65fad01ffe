/* What users copy into launch options: lists of hosts and of network interfaces, launch lines of other programs; and
 * the output of Slurm's programs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "dist/net/net.h"
#include "trainer/config/import/import.h"
#include "trainer/job/slurm/job.h"
#include "trainer/launch/remote/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A list that could be read is written again, without users, and must then have the same hosts. */
static void read_hosts(const char *text)
{
	struct ct_hosts hosts = {0}, again = {0};
	struct ct_str list = {0};

	if (ct_hosts_parse(text, &hosts) == CT_OK) {
		for (size_t i = 0; i < hosts.n; i++) {
			const char *name = ct_host_address(&hosts.all[i]);
			const bool v6 = strchr(name, ':') != NULL;

			ct_str_addf(&list, "%s%s%s%s", i > 0 ? "," : "", v6 ? "[" : "", name, v6 ? "]" : "");
			if (hosts.all[i].procs > 0)
				ct_str_addf(&list, ":%d", hosts.all[i].procs);
		}
		if (ct_hosts_parse(ct_str_text(&list), &again) == CT_OK && again.n != hosts.n)
			__builtin_trap();
	}
	ct_str_release(&list);
	ct_hosts_release(&again);
	ct_hosts_release(&hosts);
	ct_error_clear();
}

static void read_slurm(const char *text)
{
	static const char *const fields[] = {"JobId", "JobState", "Requeue", "x"};
	char value[24];
	int64_t seconds;

	for (size_t i = 0; i < CT_ARRAY_LEN(fields); i++) {
		if (!ct_slurm_field(text, fields[i], value, sizeof(value)) && value[0])
			__builtin_trap();
	}
	if (ct_slurm_parse_time(text, &seconds) < 0)
		ct_error_clear();
	else if (seconds < 0)
		__builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = ct_strndup((const char *)data, size);
	struct ct_net_addr *addrs = NULL;
	struct ct_str out = {0};
	size_t n = 0;

	if (!text)
		return 0;
	read_hosts(text);
	read_slurm(text);
	if (ct_net_select(text, &addrs, &n) < 0 || ct_import_line(text, &out) < 0)
		ct_error_clear();
	ct_str_release(&out);
	ct_free(addrs);
	ct_free(text);
	return 0;
}
