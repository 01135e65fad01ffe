/* `ctrain info`: lists what this build and this machine support, and why the other parts are not available. */
#define CT_LOG_COMPONENT "info"
#include <gnu/libc-version.h>

#include "base/cpu/features.h"
#include "base/device/cuda_module.h"
#include "base/device/device.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "dist/comm/comm.h"
#include "dist/settings/settings.h"
#include "nn/engine.h"
#include "nn/models/model.h"
#include "trainer/job/version.h"
#include "trainer/plan/topology.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/doctor/bug_report.h"

#define AS_TEXT(x) #x
#define VERSION_TEXT(major, minor) AS_TEXT(major) "." AS_TEXT(minor)
#define BUILT_WITH VERSION_TEXT(__GLIBC__, __GLIBC_MINOR__)

static ct_json *entry(const char *name, bool available, const char *why)
{
	ct_json *o = ct_json_object();

	ct_json_set_str(o, "name", name);
	ct_json_set_bool(o, "available", available);
	if (why[0])
		ct_json_set_str(o, available ? "library" : "why", why);
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

/* The GPUs, and the libraries with their paths. */
static ct_json *cuda(void)
{
	struct ct_cuda_part parts[CT_CUDA_N_PARTS];
	struct ct_device_info info;
	int n_parts = ct_cuda_parts(parts), n_gpus;

	if (n_parts == 0)
		return NULL;
	ct_json *j = ct_json_object(), *libraries = ct_json_array(), *gpus = ct_json_array();
	for (int i = 0; i < n_parts; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "name", parts[i].name);
		ct_json_set_str(o, "version", parts[i].version);
		ct_json_set_str(o, "path", parts[i].path);
		ct_json_push(libraries, o);
	}
	if (ct_device_count("cuda", &n_gpus) < 0)
		n_gpus = 0;
	for (int i = 0; i < n_gpus && ct_device_describe("cuda", i, &info) == CT_OK; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_i64(o, "index", i);
		ct_json_set_str(o, "name", info.name);
		ct_json_set_str(o, "arch", info.arch);
		ct_json_set_i64(o, "bytes", (int64_t)info.total_bytes);
		ct_json_set_str(o, "uuid", info.uuid);
		ct_json_set_str(o, "bus", info.bus);
		if (ct_device_check("cuda", i) < 0)
			ct_json_set_str(o, "why_not", ct_error_message());
		ct_error_clear();
		ct_json_push(gpus, o);
	}
	ct_error_clear();
	ct_json_set(j, "libraries", libraries);
	ct_json_set(j, "devices", gpus);
	return j;
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

/* The environment variables of NCCL and gloo that are set, with what is wrong with them. */
static enum ct_status add_settings(const char *prefix, ct_json *list)
{
	struct ct_settings s;

	CT_TRY(ct_settings_read(prefix, &s));
	for (size_t i = 0; i < s.n; i++) {
		const struct ct_setting *one = &s.all[i];
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "name", one->name);
		ct_json_set_str(o, "value", one->value);
		if (one->state != CT_SETTING_FINE)
			ct_json_set_str(o, "problem", one->why);
		if (one->state != CT_SETTING_FINE && one->hint[0])
			ct_json_set_str(o, "hint", one->hint);
		ct_json_push(list, o);
	}
	ct_settings_release(&s);
	return CT_OK;
}

static void add_backends(const char *title, const ct_json *list, struct ct_str *out)
{
	for (size_t i = 0; i < ct_json_len(list); i++) {
		const ct_json *o = ct_json_at(list, i);
		const char *name = "", *why = "";
		bool available = false;
		int64_t count = 0;

		if (ct_json_get_str(o, "name", &name) < 0 || ct_json_get_bool(o, "available", &available) < 0)
			continue;
		const char *key = available ? "library" : "why";
		if (ct_json_get(o, key) && ct_json_get_str(o, key, &why) < 0)
			why = "";
		ct_str_addf(out, "%-10s %-10s %s", i == 0 ? title : "", name, available ? "yes" : "no");
		if (ct_json_get(o, "count") && ct_json_get_i64(o, "count", &count) == CT_OK && available)
			ct_str_addf(out, " (%lld)", (long long)count);
		ct_str_addf(out, "%s%s\n", why[0] ? ": " : "", why);
	}
}

static const char *text_of(const ct_json *o, const char *key)
{
	const char *text = "";

	if (ct_json_get_str(o, key, &text) < 0)
		ct_error_clear();
	return text;
}

static void add_cuda(const ct_json *j, struct ct_str *out)
{
	const ct_json *gpus = ct_json_get(j, "devices"), *libraries = ct_json_get(j, "libraries");

	for (size_t i = 0; i < ct_json_len(gpus); i++) {
		const ct_json *o = ct_json_at(gpus, i);
		int64_t bytes = 0;

		if (ct_json_get_i64(o, "bytes", &bytes) < 0)
			ct_error_clear();
		ct_str_addf(out, "%-10s cuda:%-5zu %s (%s), %.1f GiB, %s, PCI %s", i == 0 ? "GPUs" : "", i,
			    text_of(o, "name"), text_of(o, "arch"), (double)bytes / (1 << 30), text_of(o, "uuid"),
			    text_of(o, "bus"));
		ct_str_addf(out, "%s%s\n", ct_json_get(o, "why_not") ? "; cannot be used: " : "",
			    ct_json_get(o, "why_not") ? text_of(o, "why_not") : "");
	}
	for (size_t i = 0; i < ct_json_len(libraries); i++) {
		const ct_json *o = ct_json_at(libraries, i);

		ct_str_addf(out, "%-10s %s: %s  %s\n", i == 0 ? "CUDA" : "", text_of(o, "name"), text_of(o, "version"),
			    text_of(o, "path"));
	}
}

static void add_settings_text(const ct_json *list, struct ct_str *out)
{
	for (size_t i = 0; i < ct_json_len(list); i++) {
		const ct_json *o = ct_json_at(list, i);

		ct_str_addf(out, "%-10s %s=%s\n", i == 0 ? "settings" : "", text_of(o, "name"), text_of(o, "value"));
		if (ct_json_get(o, "problem"))
			ct_str_addf(out, "%-10s   %s%s%s\n", "", text_of(o, "problem"),
				    ct_json_get(o, "hint") ? "; " : "",
				    ct_json_get(o, "hint") ? text_of(o, "hint") : "");
	}
}

static void add_names(const char *title, const ct_json *list, struct ct_str *out)
{
	ct_str_addf(out, "%-10s", title);
	for (size_t i = 0; i < ct_json_len(list); i++)
		ct_str_addf(out, " %s", ct_json_as_str(ct_json_at(list, i)));
	ct_str_addf(out, "\n");
}

static enum ct_status collect(ct_json *j)
{
	ct_json *settings = ct_json_array(), *binding = ct_json_array();
	char cpus[128];

	ct_cpu_list(cpus, sizeof(cpus));
	ct_json_set_str(j, "version", ct_version());
	ct_json_set_str(j, "glibc", gnu_get_libc_version());
	ct_json_set_str(j, "built_with_glibc", BUILT_WITH);
	ct_json_set_i64(j, "cpus", ct_cpu_count());
	ct_json_set_str(j, "cpu_list", cpus);
	ct_json_set_str(j, "isa", ct_cpu_isa() == CT_ISA_AUTO ? "generic" : ct_isa_name(ct_cpu_isa()));
	ct_json_set(j, "devices", devices());
	ct_json *gpus = cuda();
	if (gpus)
		ct_json_set(j, "cuda", gpus);
	ct_json_set(j, "engines", backends(ct_engine_at));
	ct_json_set(j, "communicators", backends(ct_comm_backend_at));
	ct_json_push(binding, ct_topology_library() ? entry("hwloc", true, ct_topology_library())
						    : entry("hwloc", false, "built with CTRAIN_HWLOC=OFF"));
	ct_json_set(j, "binding", binding);
	ct_json_set(j, "models", names(ct_model_name_at));
	ct_json_set(j, "data", names(ct_dataset_name_at));
	ct_json_set(j, "settings", settings);
	CT_TRY(add_settings("NCCL_", settings));
	return add_settings("GLOO_", settings);
}

static enum ct_status add_text(const ct_json *j, struct ct_str *out)
{
	int64_t cpus = 0;
	const char *list = "";

	CT_TRY(ct_json_get_i64(j, "cpus", &cpus));
	CT_TRY(ct_json_get_str(j, "cpu_list", &list));
	ct_str_addf(out, "ctrain     %s\n", ct_version());
	ct_str_addf(out,
		    "C library  glibc %s; built with " BUILT_WITH
		    ", which is the oldest version on which this program runs\n",
		    gnu_get_libc_version());
	ct_str_addf(out, "cpus       %lld (%s), instructions %s\n", (long long)cpus, list, text_of(j, "isa"));
	add_backends("device", ct_json_get(j, "devices"), out);
	if (ct_json_get(j, "cuda"))
		add_cuda(ct_json_get(j, "cuda"), out);
	add_backends("engine", ct_json_get(j, "engines"), out);
	add_backends("dist", ct_json_get(j, "communicators"), out);
	add_backends("binding", ct_json_get(j, "binding"), out);
	add_settings_text(ct_json_get(j, "settings"), out);
	add_names("models", ct_json_get(j, "models"), out);
	add_names("data", ct_json_get(j, "data"), out);
	return CT_OK;
}

static enum ct_status print_report(const struct ct_cli *cli, const ct_json *j)
{
	struct ct_str info = {0}, text = {0};
	enum ct_status st = add_text(j, &info);

	if (st == CT_OK)
		st = ct_bug_report(ct_str_text(&info), cli->n_args > 0 ? cli->args[0] : NULL, &text);
	ct_str_release(&info);
	if (st < 0) {
		ct_str_release(&text);
		return st;
	}
	CT_TRY(ct_print_to(cli->out, &text));
	CT_INFO("before you publish the report, remove what must stay private: it contains paths, host names and settings");
	return CT_OK;
}

enum ct_status ct_cmd_info(const struct ct_cli *cli)
{
	const struct ct_info_options *o = cli->own;
	struct ct_str text = {0};
	ct_json *j;
	enum ct_status st;

	if (o->report && cli->json)
		return CT_FAIL(CT_USAGE, "--report and --json cannot be used together");
	if (!o->report && (cli->n_args > 0 || cli->out)) {
		CT_FAIL(CT_USAGE, "info needs --report to %s", cli->out ? "write a file" : "describe a run");
		return ct_error_hint("ctrain info --report%s%s", cli->n_args > 0 ? " " : "",
				     cli->n_args > 0 ? cli->args[0] : "");
	}
	j = ct_json_object();
	st = collect(j);
	if (st == CT_OK && cli->json)
		return ct_print_json(j, true);
	if (st == CT_OK)
		st = o->report ? print_report(cli, j) : add_text(j, &text);
	ct_json_destroy(j);
	if (st == CT_OK && !o->report)
		return ct_print_text(&text);
	ct_str_release(&text);
	return st;
}
