/* Limits, CPUs and memory of this host, and the program itself. Open files are judged by the hard limit, since a run
 * raises its soft limit itself (trainer/job/limits.h). Space in /dev/shm is needed only for several ranks on this host
 * that use GPUs, and thus NCCL, or a backend with CT_COMM_DEV_SHM. The configuration becomes a digest of its lines, and
 * the libraries become one text, so that nodes can compare both as strings. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/comm.h"
#include "dist/comm/kind.h"
#include "dist/settings/nccl_defects.h"
#include "nn/engine.h"
#include "trainer/job/limits.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/host_binding.h"
#include "trainer/tools/doctor/collect_impl.h"

#define SHM_PER_RANK ((int64_t)10 << 20) /* buffers of NCCL, or of MPI's shared-memory transport, for a rank */

static int64_t limit_of(int resource, bool most)
{
	struct rlimit r;

	if (getrlimit((__rlimit_resource_t)resource, &r) != 0)
		return -1;
	const rlim_t v = most ? r.rlim_max : r.rlim_cur;
	return v == RLIM_INFINITY || v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* ctrain's own shared memory (dist.backend shm and hier) is not in /dev/shm. */
static bool needs_dev_shm(const struct ct_collect_opts *o, const struct ct_facts *f)
{
	return o->cfg && f->ranks > 1 &&
	       (strcmp(f->device, "cuda") == 0 || ct_comm_has(o->cfg->dist.backend, CT_COMM_DEV_SHM));
}

static void collect_limits(const struct ct_collect_opts *o, struct ct_facts *f)
{
	struct statvfs v;

	f->open_files = limit_of(RLIMIT_NOFILE, false);
	f->open_files_most = limit_of(RLIMIT_NOFILE, true);
	f->open_files_needed = ct_limits_open_files((int)f->ranks);
	f->locked_bytes = limit_of(RLIMIT_MEMLOCK, true);
	f->shm_bytes = statvfs("/dev/shm", &v) == 0 ? (int64_t)(v.f_bavail * v.f_frsize) : 0;
	f->shm_needed = needs_dev_shm(o, f) ? f->ranks * SHM_PER_RANK : 0;
	f->in_container = ct_file_exists("/.dockerenv") || ct_file_exists("/run/.containerenv");
}

/* Appends the names and versions of the libraries that are available. */
static void collect_libraries(bool (*at)(size_t, const char **, bool *, char *, size_t), struct ct_facts *f)
{
	char why[256];
	const char *name;
	bool available;

	for (size_t i = 0; at(i, &name, &available, why, sizeof(why)); i++) {
		const size_t len = strlen(f->libraries);

		if (available && why[0])
			snprintf(f->libraries + len, sizeof(f->libraries) - len, "%s%s", len > 0 ? ", " : "", why);
	}
}

/* Without NCCL, there is no version with a defect. */
static void collect_nccl(const struct ct_collect_opts *o, struct ct_facts *f)
{
	int version;

	if (ct_plan_may_use_nccl(o->cfg, o->ranks.world) && ct_comm_library_version("nccl", &version) == CT_OK &&
	    ct_nccl_check_defects(version, o->cfg->dist.nccl_windows) < 0) {
		snprintf(f->nccl_defect, sizeof(f->nccl_defect), "%s", ct_error_message());
		snprintf(f->nccl_remedy, sizeof(f->nccl_remedy), "%s", ct_error_hint_text());
	}
	ct_error_clear();
}

static void collect_config(const struct ct_config *c, struct ct_facts *f)
{
	struct ct_str lines = {0};
	struct ct_sha256 h;
	char hex[CT_SHA256_HEX];

	if (ct_config_run_lines(c, &lines) == CT_OK && ct_str_status(&lines) == CT_OK) {
		ct_sha256_init(&h);
		ct_sha256_update(&h, ct_str_text(&lines), lines.len);
		ct_sha256_final_hex(&h, hex);
		snprintf(f->config, sizeof(f->config), "%s", hex);
	}
	ct_error_clear();
	ct_str_release(&lines);
}

static void collect_binding(const struct ct_collect_opts *o, struct ct_facts *f)
{
	struct ct_host_binding host;
	struct ct_str lines = {0};

	if (ct_host_binding_open(o->cfg, o->ranks.local, o->by != CT_LAUNCHER_NONE, &host) == CT_OK) {
		ct_host_binding_lines(&host, o->ranks.first, &lines);
		ct_host_binding_close(&host);
	} else {
		ct_str_addf(&lines, "binding      none: %s\n", ct_error_message());
	}
	snprintf(f->binding, sizeof(f->binding), "%s", ct_str_text(&lines));
	ct_str_release(&lines);
}

void ct__collect_host(const struct ct_collect_opts *o, struct ct_facts *f)
{
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	(void)gethostname(f->host, sizeof(f->host) - 1);
	snprintf(f->version, sizeof(f->version), "%s", CTRAIN_VERSION);
	snprintf(f->build, sizeof(f->build), "%s", CT_BUILD_ID);
	if (!o->quick) {
		collect_libraries(ct_engine_at, f);
		collect_libraries(ct_comm_backend_at, f);
	}
	collect_limits(o, f);
	f->cpus = ct_cpu_count();
	f->memory_bytes = pages > 0 && page > 0 ? (int64_t)pages * page : -1;
	if (o->cfg) {
		f->threads = ct_plan_threads(o->cfg, o->ranks.local);
		collect_config(o->cfg, f);
	}
	if (o->cfg && !o->quick) {
		collect_nccl(o, f);
		collect_binding(o, f);
	}
	ct_error_clear();
}
