/* `ctrain info`: lists what this build and this machine support, and why the other parts are not available. */
#include <stdio.h>

#include "base/device/device.h"
#include "base/json.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "dist/comm/comm.h"
#include "nn/engine.h"
#include "nn/models/model.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"

static ct_json *entry(const char *name, bool available, const char *why)
{
	ct_json *o = ct_json_object();
	ct_json_set_str(o, "name", name);
	ct_json_set_bool(o, "available", available);
	if (!available)
		ct_json_set_str(o, "why", why);
	return o;
}

static ct_json *devices(void)
{
	ct_json *a = ct_json_array();
	const char *kind;
	int count;
	char why[256];
	for (size_t i = 0; ct_device_kind_at(i, &kind, &count, why, sizeof(why)); i++) {
		ct_json *o = entry(kind, count > 0, why);
		ct_json_set_i64(o, "count", count);
		ct_json_push(a, o);
	}
	return a;
}

static ct_json *backends(bool (*at)(size_t, const char **, bool *, char *, size_t))
{
	ct_json *a = ct_json_array();
	const char *name;
	bool available;
	char why[256];
	for (size_t i = 0; at(i, &name, &available, why, sizeof(why)); i++)
		ct_json_push(a, entry(name, available, why));
	return a;
}

static ct_json *names(const char *(*at)(size_t))
{
	ct_json *a = ct_json_array();
	for (size_t i = 0; at(i); i++)
		ct_json_push_str(a, at(i));
	return a;
}

static void print_backends(const char *title, const ct_json *list)
{
	for (size_t i = 0; i < ct_json_len(list); i++) {
		const ct_json *o = ct_json_at(list, i);
		const char *name = "", *why = "";
		bool available = false;
		int64_t count = 0;
		if (ct_json_get_str(o, "name", &name) < 0 || ct_json_get_bool(o, "available", &available) < 0)
			continue;
		if (!available && ct_json_get_str(o, "why", &why) < 0)
			why = "";
		printf("%-10s %-10s %s", i == 0 ? title : "", name, available ? "yes" : "no");
		if (ct_json_get(o, "count") && ct_json_get_i64(o, "count", &count) == CT_OK && available)
			printf(" (%lld)", (long long)count);
		printf("%s%s\n", available ? "" : ": ", why);
	}
}

static void print_names(const char *title, const ct_json *list)
{
	printf("%-10s", title);
	for (size_t i = 0; i < ct_json_len(list); i++)
		printf(" %s", ct_json_as_str(ct_json_at(list, i)));
	printf("\n");
}

static ct_json *collect(void)
{
	ct_json *j = ct_json_object();
	char cpus[128];
	ct_cpu_list(cpus, sizeof(cpus));
	ct_json_set_str(j, "version", CTRAIN_VERSION);
	ct_json_set_i64(j, "cpus", ct_cpu_count());
	ct_json_set_str(j, "cpu_list", cpus);
	ct_json_set(j, "devices", devices());
	ct_json_set(j, "engines", backends(ct_engine_at));
	ct_json_set(j, "communicators", backends(ct_comm_backend_at));
	ct_json_set(j, "models", names(ct_model_name_at));
	ct_json_set(j, "data", names(ct_dataset_name_at));
	return j;
}

static enum ct_status print_text(const ct_json *j)
{
	int64_t cpus = 0;
	const char *list = "";
	CT_TRY(ct_json_get_i64(j, "cpus", &cpus));
	CT_TRY(ct_json_get_str(j, "cpu_list", &list));
	printf("ctrain     " CTRAIN_VERSION "\ncpus       %lld (%s)\n", (long long)cpus, list);
	print_backends("device", ct_json_get(j, "devices"));
	print_backends("engine", ct_json_get(j, "engines"));
	print_backends("dist", ct_json_get(j, "communicators"));
	print_names("models", ct_json_get(j, "models"));
	print_names("data", ct_json_get(j, "data"));
	return CT_OK;
}

enum ct_status ct_cmd_info(const struct ct_cli *cli)
{
	ct_json *j = collect();
	if (cli->json)
		return ct__print_json(j, true);
	enum ct_status st = print_text(j);
	ct_json_destroy(j);
	return st;
}
