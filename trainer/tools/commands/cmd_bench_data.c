/* `ctrain bench data`: measures how fast training images are loaded, and which stage is the bottleneck. There are three
 * measurements: each stage separately, on one thread; only reading and decoding, on all threads; and the loader with
 * all threads, as in training. They alternate for the requested time, so that other work on the machine affects all of
 * them. The medians are printed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

#define MAX_THREADS 256
#define MAX_ROUNDS 32
#define ROUND_SECONDS                                                                                   \
	0.4 /* per measurement; twice as long for the loader, because only complete batches are counted \
	     */
#define MAX_BATCH \
	128 /* samples; the rate does not depend on it, but small batches are counted with a finer resolution */
#define MAX_LATENCIES 65536

enum stage { READ, DECODE, RESIZE, DISTORT, ASSEMBLE, N_STAGES };
static const char *const stage_names[] = {"read", "decode", "resize", "distort", "assemble"};

struct bench {
	const struct ct_config *c;
	const ct_dataset *data;
	const struct ct_dataset_info *info;
	struct ct_run_plan plan;
	struct ct_loader_opts lo;
	struct ct_shape shape;
	uint32_t *order; /* [n] the order of the samples in epoch 0 */
	int threads;
	int rounds;
	double seconds; /* duration of one measurement */
	bool decodes;
	_Atomic uint64_t next; /* next position in `order` that no measurement has used */
	/* Images per second in each round; for *_cpu and core, per second of CPU time. */
	double core[MAX_ROUNDS], limit[MAX_ROUNDS], pool[MAX_ROUNDS], limit_cpu[MAX_ROUNDS], pool_cpu[MAX_ROUNDS];
	struct ct_transform_times times; /* of the measurement with one thread */
	int64_t assemble_ns;
	uint64_t assembled;
	float *latency_ms;
	size_t n_latencies;
	uint64_t checksum;
};

/* A thread that loads images until the time is over. */
struct worker {
	struct ct_thread thread;
	struct bench *b;
	int64_t end_ns;
	bool decode_only;
	bool alone; /* this is the only thread, and its latencies are recorded */
	uint64_t images;
	struct ct_transform_times times;
	struct ct_error error;
};

static double cpu_seconds(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_SELF, &u) != 0)
		return 0;
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void keep_latency(struct bench *b, int64_t ns)
{
	if (b->n_latencies < MAX_LATENCIES)
		b->latency_ms[b->n_latencies++] = (float)ns * 1e-6f;
}

static enum ct_status work(struct worker *w)
{
	struct bench *b = w->b;
	ct_transformer *t = NULL;
	uint8_t *x = ct_calloc((size_t)b->shape.h * (size_t)b->shape.w, (size_t)b->shape.c);
	enum ct_status st = x ? ct_transformer_create(&b->plan.transform, b->data, &t) : CT_NOMEM;
	int64_t now = ct_now_ns(), before;

	if (st == CT_OK)
		ct_transformer_resize(t, b->shape.h, b->shape.w);
	while (st == CT_OK && now < w->end_ns) {
		uint64_t place = atomic_fetch_add(&b->next, 1);
		uint32_t i = b->order[place % b->info->n];
		int32_t label;

		before = now;
		st = w->decode_only ? ct_transformer_decode(t, b->plan.train.seed, 0, i)
				    : ct_transformer_run(t, b->plan.train.seed, 0, i, x, &label);
		/* The loader would replace an unreadable sample with another one. */
		if (st == CT_DATA) {
			ct_error_clear();
			st = CT_OK;
		}
		now = ct_now_ns();
		w->images++;
		if (w->alone)
			keep_latency(b, now - before);
	}
	if (t)
		w->times = *ct_transformer_times(t);
	ct_transformer_destroy(t);
	ct_free(x);
	return st;
}

static void *work_main(void *arg)
{
	struct worker *w = arg;

	w->error.status = work(w);
	if (w->error.status < 0)
		ct_error_save(&w->error);
	return NULL;
}

/* Measures the images per second of n threads, and the images per second of their CPU time. */
static enum ct_status measure_threads(struct bench *b, int n, bool decode_only, double *rate, double *cpu_rate)
{
	struct worker *w;
	int64_t t0 = ct_now_ns(), end = t0 + (int64_t)(b->seconds * 1e9);
	double cpu0 = cpu_seconds();
	enum ct_status st = CT_OK;
	uint64_t images = 0;
	int started = 0;

	CT_TRY_ALLOC(w = CT_NEW_ARRAY(struct worker, (size_t)n));
	for (; started < n && st == CT_OK; started++) {
		w[started] = (struct worker){
			.b = b, .end_ns = end, .decode_only = decode_only, .alone = n == 1 && !decode_only};
		st = ct_thread_start(&w[started].thread, "ctrain-bench", work_main, &w[started]);
	}
	for (int i = 0; i < started; i++) {
		ct_thread_join(&w[i].thread);
		images += w[i].images;
		if (st == CT_OK && w[i].error.status < 0)
			st = ct_error_restore(&w[i].error);
	}
	*rate = (double)images / ct_seconds_since(t0);
	*cpu_rate = (double)images / (cpu_seconds() - cpu0);
	if (!decode_only) {
		const struct ct_transform_times *t = &w[0].times;

		b->times.read_ns += t->read_ns;
		b->times.decode_ns += t->decode_ns;
		b->times.resize_ns += t->resize_ns;
		b->times.distort_ns += t->distort_ns;
		b->times.images += t->images;
		b->times.encoded_bytes += t->encoded_bytes;
		b->times.decoded_pixels += t->decoded_pixels;
	}
	ct_free(w);
	return st;
}

/* Measures the loader at full speed, which it reaches after the first batches have filled its ring. */
static enum ct_status measure_pool(struct bench *b, double *rate, double *cpu_rate)
{
	struct ct_loader_batch batch;
	struct ct_loader_stats stats;
	ct_loader *l = NULL;
	enum ct_status st;
	uint64_t images = 0;

	CT_TRY(ct_loader_create(b->data, &b->lo, &l));
	const struct ct_sampler *s = &b->lo.sampler;
	st = ct_loader_seek(l, 0, atomic_load(&b->next) / s->global_batch % ct_sampler_steps(s));
	for (int i = 0; i < b->lo.depth && st == CT_OK; i++) {
		st = ct_loader_next(l, CT_FOREVER, &batch);
		ct_loader_release(l, &batch);
	}
	int64_t t0 = ct_now_ns(), end = t0 + (int64_t)(2 * b->seconds * 1e9);
	double cpu0 = cpu_seconds();
	while (st == CT_OK && ct_now_ns() < end) {
		st = ct_loader_next(l, CT_FOREVER, &batch);
		if (st == CT_OK && batch.n > 0) {
			images += batch.n;
			b->checksum += ((const uint8_t *)batch.x)[0];
		}
		ct_loader_release(l, &batch);
	}
	*rate = (double)images / ct_seconds_since(t0);
	*cpu_rate = (double)images / (cpu_seconds() - cpu0);
	ct_loader_stats(l, &stats);
	b->assemble_ns += stats.assemble_ns;
	b->assembled += stats.times.images;
	atomic_fetch_add(&b->next, images);
	ct_loader_destroy(l);
	return st;
}

static enum ct_status measure(struct bench *b)
{
	double unused;

	/* Warms up the page cache, memory and the CPU's clock frequency. */
	CT_TRY(measure_threads(b, b->threads, false, &unused, &unused));
	b->times = (struct ct_transform_times){0};
	b->n_latencies = 0;
	for (int r = 0; r < b->rounds; r++) {
		CT_TRY(measure_threads(b, 1, false, &unused, &b->core[r]));
		if (b->decodes)
			CT_TRY(measure_threads(b, b->threads, true, &b->limit[r], &b->limit_cpu[r]));
		CT_TRY(measure_pool(b, &b->pool[r], &b->pool_cpu[r]));
	}
	return CT_OK;
}

static int compare_f64(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), compare_f64);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int compare_f32(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

struct result {
	double core, limit, limit_cpu, pool, pool_cpu;
	double stage_ms[N_STAGES]; /* per image on one thread */
	double total_ms;
	enum stage bound;
	double mb_per_sec, mpixel_per_sec; /* read and decoded by the loader */
	double p50, p90, p99, max;         /* latency per image on one thread, in ms */
};

static void summarise(struct bench *b, struct result *r)
{
	const struct ct_transform_times *t = &b->times;
	double images = t->images > 0 ? (double)t->images : 1;
	const int64_t ns[] = {t->read_ns, t->decode_ns, t->resize_ns, t->distort_ns};
	size_t n = b->n_latencies;

	*r = (struct result){.core = median(b->core, b->rounds),
			     .pool = median(b->pool, b->rounds),
			     .pool_cpu = median(b->pool_cpu, b->rounds)};
	if (b->decodes) {
		r->limit = median(b->limit, b->rounds);
		r->limit_cpu = median(b->limit_cpu, b->rounds);
	}
	for (int i = READ; i < ASSEMBLE; i++)
		r->stage_ms[i] = (double)ns[i] * 1e-6 / images;
	r->stage_ms[ASSEMBLE] = b->assembled > 0 ? (double)b->assemble_ns * 1e-6 / (double)b->assembled : 0;
	for (int i = 0; i < N_STAGES; i++) {
		r->total_ms += r->stage_ms[i];
		r->bound = r->stage_ms[i] > r->stage_ms[r->bound] ? (enum stage)i : r->bound;
	}
	r->mb_per_sec = r->pool * (double)t->encoded_bytes * 1e-6 / images;
	r->mpixel_per_sec = r->pool * (double)t->decoded_pixels * 1e-6 / images;
	if (n > 0) {
		qsort(b->latency_ms, n, sizeof(*b->latency_ms), compare_f32);
		r->p50 = (double)b->latency_ms[n / 2];
		r->p90 = (double)b->latency_ms[n * 9 / 10];
		r->p99 = (double)b->latency_ms[n * 99 / 100];
		r->max = (double)b->latency_ms[n - 1];
	}
}

static enum ct_status print_json(const struct bench *b, const struct result *r)
{
	ct_json *j = ct_json_object(), *stages = ct_json_object(), *latency = ct_json_object();

	ct_json_set_str(j, "bench", "data");
	ct_json_set_str(j, "data", ct_config_choice(b->c, "data.name"));
	ct_json_set_i64(j, "samples", b->info->n);
	ct_json_set_i64(j, "height", b->shape.h);
	ct_json_set_i64(j, "width", b->shape.w);
	ct_json_set_i64(j, "threads", b->threads);
	ct_json_set_i64(j, "batch", b->lo.sampler.global_batch);
	ct_json_set_i64(j, "rounds", b->rounds);
	ct_json_set_f64(j, "images_per_sec", r->pool);
	ct_json_set_f64(j, "images_per_cpu_sec", r->pool_cpu);
	ct_json_set_f64(j, "core_images_per_sec", r->core);
	if (b->decodes) {
		ct_json_set_f64(j, "decode_only_images_per_sec", r->limit);
		ct_json_set_f64(j, "decode_only_images_per_cpu_sec", r->limit_cpu);
		ct_json_set_f64(j, "share_of_decode_only", r->limit > 0 ? r->pool / r->limit : 0);
	}
	for (int i = 0; i < N_STAGES; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_f64(o, "ms", r->stage_ms[i]);
		ct_json_set_f64(o, "images_per_sec", r->stage_ms[i] > 0 ? 1e3 / r->stage_ms[i] : 0);
		ct_json_set_f64(o, "share", r->total_ms > 0 ? r->stage_ms[i] / r->total_ms : 0);
		ct_json_set(stages, stage_names[i], o);
	}
	ct_json_set(j, "stages", stages);
	ct_json_set_str(j, "bound_by", stage_names[r->bound]);
	ct_json_set_f64(j, "read_mb_per_sec", r->mb_per_sec);
	ct_json_set_f64(j, "decoded_mpixel_per_sec", r->mpixel_per_sec);
	ct_json_set_f64(latency, "p50", r->p50);
	ct_json_set_f64(latency, "p90", r->p90);
	ct_json_set_f64(latency, "p99", r->p99);
	ct_json_set_f64(latency, "max", r->max);
	ct_json_set(j, "image_ms", latency);
	ct_json_set_i64(j, "checksum", (int64_t)b->checksum);
	return ct_print_json(j, false);
}

static void print_text(const struct bench *b, const struct result *r)
{
	printf("%s: %u images to %d x %d, batches of %u, %d thread%s\n", ct_config_choice(b->c, "data.name"),
	       b->info->n, b->shape.w, b->shape.h, b->lo.sampler.global_batch, b->threads, ct_plural(b->threads));
	printf("  stage        ms/image   images/s of a core   share\n");
	for (int i = 0; i < N_STAGES; i++)
		printf("  %-10s  %9.4f   %18.0f   %4.0f%%\n", stage_names[i], r->stage_ms[i],
		       r->stage_ms[i] > 0 ? 1e3 / r->stage_ms[i] : 0, 100 * r->stage_ms[i] / r->total_ms);
	printf("  one core     %.0f images/s (p50 %.2f ms, p90 %.2f, p99 %.2f, max %.2f)\n", r->core, r->p50, r->p90,
	       r->p99, r->max);
	if (b->decodes)
		printf("  decode only  %.0f images/s, %d threads\n", r->limit, b->threads);
	printf("  loader       %.0f images/s, %d threads", r->pool, b->threads);
	if (b->decodes)
		printf(" (%.0f%% of decode only; reads %.0f MB/s, decodes %.0f Mpixel/s)", 100 * r->pool / r->limit,
		       r->mb_per_sec, r->mpixel_per_sec);
	printf("\nbound by %s: %.0f%% of the time of an image\n", stage_names[r->bound],
	       100 * r->stage_ms[r->bound] / r->total_ms);
}

static enum ct_status run(struct bench *b, const struct ct_cli *cli)
{
	const struct ct_bench_data_options *o = cli->own;
	struct result r;
	int64_t seconds, threads;

	CT_TRY(ct_cli_number("--seconds", o->seconds, 5, 1, 3600, &seconds));
	CT_TRY(ct_cli_number("--threads", cli->threads, ct_cpu_count(), 1, MAX_THREADS, &threads));
	CT_TRY(ct_run_plan_make(b->c, 1, b->info, NULL, &b->plan));
	ct_plan_loader_opts(b->c, &b->plan, b->info, true, 0, 1, &b->lo);
	b->threads = b->lo.n_threads = (int)threads;
	if (b->lo.sampler.global_batch > MAX_BATCH) {
		b->lo.sampler.global_batch = MAX_BATCH;
		b->lo.sampler.accumulate = 1;
	}
	b->shape = ct_plan_input_at(&b->plan, 0);
	b->decodes = b->info->kind == CT_SAMPLE_ENCODED;
	if (b->info->kind == CT_SAMPLE_F32)
		return CT_FAIL(CT_USAGE, "data set %s has no images", b->info->name);
	int parts = b->decodes ? 4 : 3;
	b->rounds = (int)((double)seconds / (ROUND_SECONDS * parts));
	b->rounds = b->rounds < 1 ? 1 : b->rounds > MAX_ROUNDS ? MAX_ROUNDS : b->rounds;
	b->seconds = (double)seconds / (b->rounds * parts + 1);
	CT_TRY_ALLOC(b->order = CT_NEW_ARRAY(uint32_t, b->info->n));
	CT_TRY_ALLOC(b->latency_ms = CT_NEW_ARRAY(float, MAX_LATENCIES));
	ct_sampler_order(&b->plan.train, 0, b->order);
	CT_TRY(measure(b));
	summarise(b, &r);
	if (cli->json)
		return print_json(b, &r);
	print_text(b, &r);
	return CT_OK;
}

enum ct_status ct_cmd_bench_data(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	ct_dataset *d = NULL;
	struct bench *b = NULL;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_plan_open_data(c, true, NULL, &d);
	if (st == CT_OK)
		st = (b = CT_NEW(struct bench)) ? CT_OK : CT_NOMEM;
	if (st == CT_OK) {
		b->c = c;
		b->data = d;
		b->info = ct_dataset_info(d);
		st = run(b, cli);
		ct_free(b->latency_ms);
		ct_free(b->order);
	}
	ct_free(b);
	ct_dataset_close(d);
	ct_config_destroy(c);
	return st;
}
