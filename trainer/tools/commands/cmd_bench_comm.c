/* `ctrain bench comm`: measures and checks the operations of the communicator of a run, without training, for a range
 * of sizes. Prints the columns of nccl-tests. The ranks are started in the same way as for training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/bench_comm.h"
#include "dist/watchdog.h"
#include "trainer/job/postmortem/oom.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/as_rank_impl.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

#define DEFAULT_MIN 4096
#define DEFAULT_MAX ((int64_t)64 << 20)
#define MAX_BYTES ((int64_t)1 << 40)

/* nccl-tests' names of element types. */
static const char *const types[CT_N_DTYPES] = {
	[CT_F32] = "float", [CT_F64] = "double",    [CT_I32] = "int32", [CT_I64] = "int64",
	[CT_U8] = "uint8",  [CT_BF16] = "bfloat16", [CT_F16] = "half",
};

static const char *const redops[] = {
	[CT_SUM] = "sum", [CT_PROD] = "prod", [CT_MIN] = "min", [CT_MAX] = "max", [CT_AVG] = "avg",
};

/* ---- options */

/* Parses 8, 512K, 32M or 1G (powers of 1024). */
static enum ct_status parse_bytes(const char *option, const char *text, int64_t fallback, size_t *out)
{
	static const char units[] = "KMG";
	const size_t digits = text ? strspn(text, "0123456789") : 0;
	const char *unit = text && text[digits] ? strchr(units, text[digits]) : NULL;
	char number[16];
	int64_t n = fallback;
	int shift = 0;

	if (text) {
		snprintf(number, sizeof(number), "%.*s", (int)digits, text);
		if (unit)
			shift = 10 * (int)(unit - units + 1);
		if (digits == 0 || digits > 13 || ct_parse_i64(number, &n) < 0 || text[digits + (unit ? 1 : 0)] ||
		    n < 1 || n > MAX_BYTES >> shift)
			return CT_FAIL(CT_USAGE, "%s %.40s: expected a size such as 8, 512K, 32M or 1G, up to %lldG",
				       option, text, (long long)(MAX_BYTES >> 30));
	}
	*out = (size_t)n << shift;
	return CT_OK;
}

static enum ct_status not_in_list(const char *option, const char *text, int len, const char *const *names, size_t n)
{
	struct ct_str list = {0};

	for (size_t i = 0; i < n; i++)
		ct_str_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
	CT_FAIL(CT_USAGE, "%s %.*s is not one of %s", option, len < 40 ? len : 40, text, ct_str_text(&list));
	ct_str_release(&list);
	return CT_USAGE;
}

/* Returns the index of a string in a list, or n. */
static size_t find(const char *text, size_t len, const char *const *names, size_t n)
{
	size_t i = 0;

	while (i < n && (strlen(names[i]) != len || memcmp(names[i], text, len) != 0))
		i++;
	return i;
}

static enum ct_status unknown_op(const char *text, size_t len, const char *const *names)
{
	(void)not_in_list("--op", text, (int)len, names, CT_BENCH_N_OPS);
	if (find(text, len, redops, CT_ARRAY_LEN(redops)) < CT_ARRAY_LEN(redops))
		ct_error_hint("--op is the operation; --redop %.*s selects the reduction", (int)len, text);
	return CT_USAGE;
}

/* Parses "allreduce,broadcast". */
static enum ct_status parse_ops(const char *text, bool ops[CT_BENCH_N_OPS])
{
	const char *names[CT_BENCH_N_OPS];

	for (size_t i = 0; i < CT_BENCH_N_OPS; i++)
		names[i] = ct_bench_op_name(i);
	while (text) {
		const size_t len = strcspn(text, ",");
		const size_t i = find(text, len, names, CT_BENCH_N_OPS);

		if (i == CT_BENCH_N_OPS)
			return unknown_op(text, len, names);
		ops[i] = true;
		text = text[len] ? text + len + 1 : NULL;
	}
	return CT_OK;
}

/* Parses one of a list of names, of which the first is the default. */
static enum ct_status parse_name(const char *option, const char *text, const char *const *names, size_t n, size_t *out)
{
	*out = text ? find(text, strlen(text), names, n) : 0;
	return *out == n ? not_in_list(option, text, (int)strlen(text), names, n) : CT_OK;
}

static enum ct_status read_sizes(const struct ct_bench_comm_options *given, struct ct_bench_comm_opts *o)
{
	int64_t n;

	CT_TRY(parse_bytes("--min", given->min, DEFAULT_MIN, &o->min_bytes));
	CT_TRY(parse_bytes("--max", given->max, DEFAULT_MAX, &o->max_bytes));
	if (o->min_bytes > o->max_bytes && !given->max)
		o->max_bytes = o->min_bytes;
	if (o->min_bytes > o->max_bytes && !given->min)
		o->min_bytes = o->max_bytes;
	if (o->min_bytes > o->max_bytes)
		return CT_FAIL(CT_USAGE, "--min %s is larger than --max %s", given->min, given->max);
	CT_TRY(ct_cli_number("--factor", given->factor, 4, 2, 1024, &n));
	o->factor = (int)n;
	if (given->step && given->factor)
		return CT_FAIL(CT_USAGE, "--step and --factor cannot be combined");
	return given->step ? parse_bytes("--step", given->step, 0, &o->step_bytes) : CT_OK;
}

static enum ct_status read_options(const struct ct_bench_comm_options *given, struct ct_bench_comm_opts *o)
{
	size_t name;
	int64_t n;

	CT_TRY(read_sizes(given, o));
	CT_TRY(ct_cli_number("--iters", given->iters, 0, 1, CT_BENCH_MAX_ITERS, &n));
	o->iters = (int)n;
	CT_TRY(ct_cli_number("--warmup", given->warmup, 5, 0, 100000, &n));
	o->warmup = (int)n;
	CT_TRY(parse_ops(given->op, o->ops));
	CT_TRY(parse_name("--type", given->type, types, CT_N_DTYPES, &name));
	o->dtype = (enum ct_dtype)name;
	CT_TRY(parse_name("--redop", given->redop, redops, CT_ARRAY_LEN(redops), &name));
	o->redop = (enum ct_redop)name;
	CT_TRY(ct_cli_number("--root", given->root, 0, 0, INT32_MAX, &n));
	o->root = (int)n;
	return CT_OK;
}

/* ---- output on rank 0 */

struct report {
	const struct ct_cli *cli;
	const ct_comm *comm;
	const struct ct_bench_comm_opts *opts;
	ct_json *rows;
	enum ct_bench_op op; /* of the last row */
	int n_rows;          /* of this operation so far */
	int64_t wrong;
	double busbw; /* sums over the rows of this operation */
};

static void end_table(struct report *r)
{
	if (r->n_rows > 0 && !r->cli->json)
		printf("# Out of bounds values : %lld %s\n# Avg bus bandwidth    : %g\n#\n", (long long)r->wrong,
		       r->wrong ? "FAILED" : "OK", r->busbw / r->n_rows);
	r->n_rows = 0;
	r->wrong = 0;
	r->busbw = 0;
}

static void print_row(struct report *r, const struct ct_bench_comm_row *row)
{
	const bool barrier = row->op == CT_BENCH_BARRIER;

	if (r->n_rows == 0) {
		printf("# %s, %s, %d rank%s\n", ct_bench_op_name(row->op), ct_comm_name(r->comm), ct_comm_size(r->comm),
		       ct_plural(ct_comm_size(r->comm)));
		printf("#%11s  %12s  %8s  %6s  %6s  %9s  %6s  %6s  %6s\n", "size", "count", "type", "redop", "root",
		       "time", "algbw", "busbw", "#wrong");
		printf("#%11s  %12s  %8s  %6s  %6s  %9s  %6s  %6s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
		       "(GB/s)");
	}
	printf("%12zu  %12zu  %8s  %6s  %6d  %9.2f  %6.2f  %6.2f  %6lld\n", row->bytes, row->count,
	       barrier ? "none" : types[r->opts->dtype], row->reduces ? redops[r->opts->redop] : "none", row->root,
	       row->us, row->algbw, row->busbw, (long long)row->wrong);
	fflush(stdout);
}

static void add_row(void *user, const struct ct_bench_comm_row *row)
{
	struct report *r = user;
	ct_json *o = ct_json_object();

	if (row->op != r->op)
		end_table(r);
	r->op = row->op;
	if (!r->cli->json)
		print_row(r, row);
	r->n_rows++;
	r->wrong += row->wrong;
	r->busbw += row->busbw;
	ct_json_set_str(o, "op", ct_bench_op_name(row->op));
	ct_json_set_i64(o, "bytes", (int64_t)row->bytes);
	ct_json_set_i64(o, "count", (int64_t)row->count);
	ct_json_set_str(o, "type", row->op == CT_BENCH_BARRIER ? "none" : types[r->opts->dtype]);
	ct_json_set_str(o, "redop", row->reduces ? redops[r->opts->redop] : "none");
	ct_json_set_i64(o, "root", row->root);
	ct_json_set_i64(o, "iters", row->iters);
	ct_json_set_f64(o, "us", row->us);
	ct_json_set_f64(o, "algbw_gbps", row->algbw);
	ct_json_set_f64(o, "busbw_gbps", row->busbw);
	ct_json_set_i64(o, "wrong", row->wrong);
	ct_json_push(r->rows, o);
}

/* Takes r->rows. */
static enum ct_status finish_report(struct report *r, int n_hosts, int64_t wrong)
{
	ct_json *j = ct_json_object();
	struct ct_str text = {0};
	enum ct_status st;

	end_table(r);
	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "bench", "comm");
	ct_json_set_str(j, "backend", ct_comm_name(r->comm));
	ct_json_set_i64(j, "world_size", ct_comm_size(r->comm));
	ct_json_set_i64(j, "hosts", n_hosts);
	ct_json_set_i64(j, "warmup", r->opts->warmup);
	ct_json_set_i64(j, "wrong", wrong);
	ct_json_set(j, "rows", r->rows);
	r->rows = NULL;
	st = ct_json_dump(j, false, &text);
	ct_json_destroy(j);
	ct_str_add(&text, "\n");
	if (st == CT_OK)
		st = ct_str_status(&text);
	if (st == CT_OK && r->cli->out)
		st = ct_file_replace(r->cli->out, ct_str_text(&text), text.len);
	if (st == CT_OK && r->cli->json)
		return ct_print_text(&text);
	ct_str_release(&text);
	return st;
}

/* ---- ranks */

static enum ct_status measure(const struct ct_cli *cli, ct_comm *comm, struct ct_world *world,
			      struct ct_bench_comm_opts *o, int64_t *wrong)
{
	struct report r = {.cli = cli, .comm = comm, .opts = o, .rows = ct_json_array()};
	enum ct_status st;

	o->row = add_row;
	o->user = &r;
	st = ct_bench_comm(comm, world, o, wrong);
	if (st == CT_OK && world->id.rank == 0)
		st = finish_report(&r, world->n_hosts, *wrong);
	ct_json_destroy(r.rows);
	return st;
}

struct bench {
	const struct ct_cli *cli;
	const struct ct_config *cfg;
	struct ct_bench_comm_opts opts;
};

/* Called before the ranks open the communicator. If they disagreed, they would wait for each other until dist.timeout.
 */
static enum ct_status agree(const struct bench *b, struct ct_world *world)
{
	const struct ct_bench_comm_opts *o = &b->opts;
	struct ct_str lines = {0};
	enum ct_status st;
	int n = 0;

	ct_str_addf(&lines, "version=%s\ndist.backend=%s\n--op=", CTRAIN_VERSION, b->cfg->dist.backend);
	for (size_t i = 0; i < CT_BENCH_N_OPS; i++)
		if (o->ops[i])
			ct_str_addf(&lines, "%s%s", n++ > 0 ? "," : "", ct_bench_op_name(i));
	ct_str_addf(&lines, "%s\n--min=%zu\n--max=%zu\n--step=%zu\n--factor=%d\n", n > 0 ? "" : "all", o->min_bytes,
		    o->max_bytes, o->step_bytes, o->factor);
	ct_str_addf(&lines, "--iters=%d%s\n--warmup=%d\n", o->iters, o->iters > 0 ? "" : " (chosen by rank 0)",
		    o->warmup);
	ct_str_addf(&lines, "--type=%s\n--redop=%s\n--root=%d\n", types[o->dtype], redops[o->redop], o->root);
	st = ct_str_status(&lines);
	if (st == CT_OK)
		st = ct_world_agree(world, "start", ct_str_text(&lines),
				    ct_deadline_in((int64_t)(b->cfg->dist.rendezvous_timeout * 1e9)));
	ct_str_release(&lines);
	return st;
}

/* Returns how much memory the ranks of this host can use, or UINT64_MAX if this is not known. */
static enum ct_status available_memory(uint64_t *out)
{
	const uint64_t limit = ct_oom_limit("/proc/self/cgroup", "/sys/fs/cgroup");
	struct ct_device_info host;
	ct_device *cpu;
	enum ct_status st;

	CT_TRY(ct_device_open("cpu", 0, &cpu));
	st = ct_device_info(cpu, &host);
	ct_device_close(cpu);
	CT_TRY(st);
	*out = host.free_bytes > 0 ? host.free_bytes : UINT64_MAX;
	if (limit > 0 && limit < *out)
		*out = limit;
	return CT_OK;
}

/* Otherwise, the kernel would kill a process. Call it before a rank of this host can have allocated its vectors. */
static enum ct_status check_memory(const struct ct_bench_comm_opts *o, const struct ct_identity *id)
{
	const int n_ranks = id->local_world > 0 ? id->local_world : 1;
	const uint64_t needed = (uint64_t)n_ranks * ct_bench_comm_host_bytes(o, id->world);
	char max[CT_BYTES_TEXT], need[CT_BYTES_TEXT], have[CT_BYTES_TEXT];
	uint64_t available;

	CT_TRY(available_memory(&available));
	if (needed <= available)
		return CT_OK;
	CT_FAIL(CT_NOMEM,
		"bench comm with --max %s needs at least %s of memory for the vectors of %d rank%s on this host, but %s are available",
		ct_bytes_text(o->max_bytes, max), ct_bytes_text(needed, need), n_ranks, ct_plural(n_ranks),
		ct_bytes_text(available, have));
	return ct_error_hint("use a smaller --max, or fewer ranks on each host");
}

static enum ct_status run_rank(void *user, const struct ct_identity *id)
{
	struct bench *b = user;
	const struct ct_config *cfg = b->cfg;
	struct ct_bench_comm_opts *o = &b->opts;
	struct ct_world world = {0};
	ct_watchdog *dog = NULL;
	ct_device *device = NULL;
	ct_comm *comm = NULL;
	char *run_dir = NULL;
	int64_t wrong = 0;
	enum ct_status st;
	struct ct_world_opts wo = {.run_id = ct_plan_run_id(cfg, id->run_id),
				   .open_network = cfg->dist.open_network,
				   .ports = ct_plan_port_range(cfg),
				   .timeout_ns = (int64_t)(cfg->dist.rendezvous_timeout * 1e9)};
	struct ct_comm_opts co = {.timeout_ns = (int64_t)(cfg->dist.timeout * 1e9),
				  .connect_ns = (int64_t)(cfg->dist.rendezvous_timeout * 1e9),
				  .ports = ct_plan_port_range(cfg),
				  .iface = cfg->dist.iface[0] ? cfg->dist.iface : NULL,
				  .nccl_windows = cfg->dist.nccl_windows};

	CT_TRY(check_memory(o, id));
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(cfg));
	wo.run_dir = run_dir;
	CT_TRY_GOTO(ct_world_join(id, &wo, &world), st, out);
	if (id->world > 1)
		CT_TRY_GOTO(ct_watchdog_start(&world, &dog), st, out);
	CT_TRY_GOTO(agree(b, &world), st, out);
	CT_TRY_GOTO(ct_plan_device_open(cfg, world.id.local_rank, &device), st, out);
	o->device = co.device = device;
	CT_TRY_GOTO(ct_plan_use_comm_settings(cfg, &world.id), st, out);
	CT_TRY_GOTO(ct_comm_open(cfg->dist.backend, &world, &co, &comm), st, out);
	if (dog)
		ct_watchdog_add_comm(dog, comm);
	CT_TRY_GOTO(measure(b->cli, comm, &world, o, &wrong), st, out);
out:
	if (st < 0 && dog)
		ct_watchdog_report(dog);
	if (dog)
		ct_watchdog_remove_comm(dog, comm);
	ct_comm_close(comm);
	ct_device_close(device);
	ct_watchdog_stop(dog);
	ct_world_leave(&world, st < 0);
	ct_free(run_dir);
	/* All ranks know the sum, but one message is enough. */
	if (st == CT_OK && wrong > 0 && id->rank == 0)
		return CT_FAIL(CT_COMM, "bench comm: %lld elements of the results are wrong", (long long)wrong);
	return st;
}

enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;
	struct bench b = {.cli = cli};

	CT_TRY(read_options(cli->own, &b.opts));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg));
	b.cfg = cfg;
	enum ct_status st = ct_log_configure(cfg->log.level);
	if (st == CT_OK)
		st = ct__as_rank(cli, cfg, true, run_rank, &b);
	ct_config_destroy(cfg);
	return st;
}
