/* Other people will read the report, so what may be secret is removed: variables with suspicious names, in URLs the
 * user, the password and the query, and the commands of on.*. Only variables that change the behavior of ctrain and its
 * libraries are listed at all. What cannot be determined is omitted. Of logs, only the end is read. */
#include "trainer/tools/doctor/bug_report.h"

#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/device/device.h"
#include "base/file.h"
#include "trainer/job/version.h"
#include "trainer/tools/runs/run_info.h"

#define REMOVED "(removed)"
#define LOG_BYTES (64 << 10)
enum { LOG_LINES = 20, LOGS = 4 };

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "GCC " __VERSION__
#endif
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED ", with AddressSanitizer"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED ", with ThreadSanitizer"
#else
#define SANITIZED ""
#endif

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Appends a string. Replaces what may be secret in URLs: the user name, the password and the query
 * (https://USER:PASSWORD@HOST/PATH?QUERY). */
static void add_public(struct ct_str *out, const char *s, size_t len)
{
	const char *end = s + len, *host;

	while ((host = memmem(s, (size_t)(end - s), "://", 3))) {
		const char *stop, *query, *at;

		host += 3;
		stop = host;
		while (stop < end && !strchr(" \t\r\n\"'<>", *stop))
			stop++;
		query = memchr(host, '?', (size_t)(stop - host));
		if (!query)
			query = stop;
		ct_str_add_bytes(out, s, (size_t)(host - s));
		at = memrchr(host, '@', (size_t)(query - host));
		ct_str_add(out, at ? REMOVED : "");
		if (at)
			host = at;
		ct_str_add_bytes(out, host, (size_t)(query - host));
		ct_str_add(out, query < stop ? "?" REMOVED : "");
		s = stop;
	}
	ct_str_add_bytes(out, s, (size_t)(end - s));
}

/* ---- build and machine */

static int add_library(struct dl_phdr_info *info, size_t size, void *user)
{
	char path[PATH_MAX];

	(void)size;
	if (info->dlpi_name[0] == '/' && realpath(info->dlpi_name, path))
		ct_str_addf(user, " %s", strrchr(path, '/') + 1);
	return 0;
}

static void add_system(struct ct_str *out)
{
	struct utsname u;
	char *text = NULL, *name;
	size_t len;

	ct_str_add(out, "system    ");
	if (ct_file_read("/etc/os-release", 1 << 16, &text, &len) == CT_OK &&
	    (name = strstr(text, "PRETTY_NAME=\"")) != NULL) {
		name += strlen("PRETTY_NAME=\"");
		ct_str_addf(out, " %.*s,", (int)strcspn(name, "\"\n"), name);
	}
	ct_error_clear(); /* a system without this file is possible */
	ct_free(text);
	if (uname(&u) == 0)
		ct_str_addf(out, " %s %s %s", u.sysname, u.release, u.machine);
	ct_str_addf(out, "%s\n",
		    ct_file_exists("/.dockerenv") || ct_file_exists("/run/.containerenv") ? ", in a container" : "");
}

static void add_machine(struct ct_str *out)
{
	struct ct_device_info cpu;
	char total[CT_BYTES_TEXT], available[CT_BYTES_TEXT];
	ct_device *d = NULL;

	if (ct_device_open("cpu", 0, &d) == CT_OK && ct_device_info(d, &cpu) == CT_OK)
		ct_str_addf(out, "cpu        %s\nmemory     %s, %s available\n", cpu.name,
			    ct_bytes_text(cpu.total_bytes, total), ct_bytes_text(cpu.free_bytes, available));
	ct_error_clear();
	ct_device_close(d);
}

/* ---- environment */

/* The variables that ctrain, its libraries and launchers read. */
static bool matters(const char *entry)
{
	static const char *const prefixes[] = {
		"CTRAIN_", "NCCL_", "GLOO_",       "CUDA_",  "CUDNN_",  "NVIDIA_", "DNNL_",     "ONEDNN_",
		"OMP_",    "GOMP_", "KMP_",        "MKL_",   "OMPI_",   "PMIX_",   "PMI_",      "MPI",
		"UCX_",    "FI_",   "SLURM_",      "PET_",   "LD_",     "MALLOC_", "LC_",       "TORCHELASTIC_",
		"RANK=",   "LANG=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "TERM=",   "NO_COLOR=", "TMPDIR="};

	for (size_t i = 0; i < CT_ARRAY_LEN(prefixes); i++) {
		if (starts_with(entry, prefixes[i]))
			return true;
	}
	return false;
}

static bool is_secret(const char *entry)
{
	static const char *const words[] = {"TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH", "JWT", "COOKIE"};
	const size_t len = strcspn(entry, "=");

	for (size_t i = 0; i < CT_ARRAY_LEN(words); i++) {
		if (memmem(entry, len, words[i], strlen(words[i])))
			return true;
	}
	return false;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum ct_status add_environment(struct ct_str *out)
{
	size_t n = 0, shown = 0;
	char **sorted;

	while (environ[n])
		n++;
	CT_TRY_ALLOC(sorted = CT_NEW_ARRAY(char *, n + 1));
	for (size_t i = 0; i < n; i++)
		sorted[i] = environ[i];
	qsort(sorted, n, sizeof(*sorted), compare_strings);
	ct_str_add(out, "\n### Environment\n\n```\n");
	for (size_t i = 0; i < n; i++) {
		const char *entry = sorted[i];

		if (!matters(entry))
			continue;
		if (is_secret(entry))
			ct_str_addf(out, "%.*s=" REMOVED, (int)strcspn(entry, "="), entry);
		else
			add_public(out, entry, strlen(entry));
		ct_str_add(out, "\n");
		shown++;
	}
	ct_str_add(out, shown ? "```\n" : "none of the variables that matter is set\n```\n");
	ct_free((void *)sorted);
	return CT_OK;
}

/* ---- run */

/* The commands of on.* often contain addresses with a key. */
static bool is_command(const struct ct_run_setting *s)
{
	return starts_with(s->key, "on.") && strcmp(s->key, "on.timeout") != 0;
}

static void add_settings(const struct ct_run_files *f, struct ct_str *out)
{
	ct_str_add(out, "\nSettings that are not defaults:\n\n```\n");
	for (size_t i = 0; i < f->n_settings; i++) {
		const struct ct_run_setting *s = &f->settings[i];

		if (s->is_default)
			continue;
		ct_str_addf(out, "%s: ", s->key);
		if (is_command(s))
			ct_str_add(out, REMOVED);
		else
			add_public(out, s->value, strlen(s->value));
		ct_str_add(out, "\n");
	}
	ct_str_add(out, "```\n");
}

static enum ct_status add_json(const char *title, const ct_json *line, struct ct_str *out)
{
	struct ct_str text = {0};
	enum ct_status st;

	if (!line)
		return CT_OK;
	st = ct_json_dump(line, false, &text);
	if (st == CT_OK) {
		ct_str_addf(out, "\n%s in metrics.jsonl:\n\n```\n", title);
		add_public(out, ct_str_text(&text), text.len);
		ct_str_add(out, "\n```\n");
	}
	ct_str_release(&text);
	return st;
}

/* Appends the last lines of a file, of which only the end is read. */
static enum ct_status add_log(const char *dir, const char *name, struct ct_str *out)
{
	char *path = ct_path_join(dir, name), *text = NULL;
	uint64_t bytes = 0;
	int fd = -1, lines = 0;
	size_t len, at;
	enum ct_status st;

	CT_TRY_ALLOC(path);
	CT_TRY_GOTO(ct_file_size(path, &bytes), st, out);
	len = bytes < LOG_BYTES ? (size_t)bytes : LOG_BYTES;
	CT_TRY_GOTO((text = CT_NEW_ARRAY(char, len + 1)) ? CT_OK : CT_NOMEM, st, out);
	CT_TRY_GOTO(ct_file_open(path, CT_FILE_READ, &fd), st, out);
	CT_TRY_GOTO(ct_fd_read_at(fd, text, len, bytes - len, path), st, out);
	while (len > 0 && text[len - 1] == '\n')
		len--;
	for (at = len; at > 0 && (text[at - 1] != '\n' || ++lines < LOG_LINES);)
		at--;
	if (len > 0) {
		ct_str_addf(out, "\nLast lines of log/%s:\n\n```\n", name);
		add_public(out, text + at, len - at);
		ct_str_add(out, "\n```\n");
	}
out:
	if (fd >= 0)
		close(fd);
	ct_free(text);
	ct_free(path);
	return st;
}

static enum ct_status add_logs(const char *run, struct ct_str *out)
{
	char *dir = ct_path_join(run, "log"), **names = NULL;
	size_t n = 0;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(dir);
	if (ct_dir_list(dir, &names, &n) < 0)
		ct_error_clear(); /* the run ended before it wrote a log */
	for (size_t i = 0; i < n && i < LOGS && st == CT_OK; i++)
		st = add_log(dir, names[i], out);
	if (n > LOGS)
		ct_str_addf(out, "\nThe logs of %zu more ranks are in log/.\n", n - LOGS);
	ct_dir_list_free(names, n);
	ct_free(dir);
	return st;
}

static enum ct_status add_run(const char *dir, struct ct_str *out)
{
	struct ct_run_info r = {0};
	enum ct_status st;

	if (!ct_run_is_dir(dir)) {
		CT_FAIL(CT_NOT_FOUND, "%s is not a run directory", dir);
		return ct_error_hint("pass the directory of the run, for example runs/NAME; `ctrain runs` lists them");
	}
	CT_TRY_GOTO(ct_run_info_load(dir, dir, &r), st, out);
	ct_str_addf(out, "\n### Run %s: %s\n", dir, ct_run_state_name(r.state));
	add_settings(&r.files, out);
	CT_TRY_GOTO(add_json("The run", r.files.run, out), st, out);
	CT_TRY_GOTO(add_json("The end", r.files.end, out), st, out);
	st = add_logs(dir, out);
out:
	ct_run_info_release(&r);
	return st;
}

enum ct_status ct_bug_report(const char *info, const char *run, struct ct_str *out)
{
	ct_str_addf(out, "### ctrain %s\n\n```\ncommit     %s\ncompiler   " COMPILER SANITIZED "\n", ct_version(),
		    ct_version_commit()[0] ? ct_version_commit() : "of the release, or unknown: built without git");
	add_system(out);
	add_machine(out);
	ct_str_add(out, info);
	ct_str_add(out, "libraries ");
	dl_iterate_phdr(add_library, out);
	ct_str_add(out, "\n```\n");
	CT_TRY(add_environment(out));
	return run ? add_run(run, out) : CT_OK;
}
