#include "bench/conv_peak.h"

#include <stdio.h>
#include <string.h>

#include "base/device/device.h"
#include "base/json.h"
#include "bench/fma_peak.h"

/* Of a step's convolutions, in seconds */
struct sums {
	double flop, peak, bound, direct, engine, best;
};

static double peak_of(const struct bench *b)
{
	const struct peak *p = &b->peaks[b->n_peaks - 1];

	return b->bf16 ? p->bf16 : p->fp32;
}

static double cpu_share(const struct bench *b)
{
	return b->cpu / (b->wall * (double)b->threads);
}

static struct sums add_up(const struct bench *b)
{
	struct sums sum = {0};

	for (const struct layer *l = b->layers; l < b->layers + b->n_layers; l++) {
		for (int pass = 0; pass < N_PASSES; pass++) {
			const struct pass *p = &l->passes[pass];

			if (p->s[DIRECT] <= 0)
				continue;
			const double compute = peak_of(b) > 0 ? l->flop / peak_of(b) : 0, move = p->bytes / b->memory;
			const double engine = p->s[WINOGRAD] > 0 ? p->s[WINOGRAD] : p->s[DIRECT];
			sum.flop += l->count * l->flop;
			sum.peak += l->count * compute;
			sum.bound += l->count * (compute > move ? compute : move);
			sum.direct += l->count * p->s[DIRECT];
			sum.engine += l->count * engine;
			sum.best += l->count * (engine < p->s[DIRECT] ? engine : p->s[DIRECT]);
		}
	}
	return sum;
}

static void print_pass(const struct layer *l, int pass)
{
	const struct pass *p = &l->passes[pass];

	for (int way = 0; way < N_WAYS; way++) {
		if (p->s[way] > 0)
			printf(" %8.3f %6.0f", p->s[way] * 1e3, l->flop / p->s[way] * 1e-9);
		else
			printf(" %8s %6s", "-", "-");
	}
}

static void print_sum(const struct sums *sum, const char *what, double s)
{
	printf("%-44s %9.2f ms %7.0f GFLOP/s", what, s * 1e3, sum->flop / s * 1e-9);
	if (sum->peak > 0)
		printf("  %5.1f %% of the peak", 100 * sum->peak / s);
	putchar('\n');
}

static void print_rate(const char *what, double rate, const char *instruction)
{
	if (rate > 0)
		printf("  %s %.0f GFLOP/s (%s)", what, rate * 1e-9, instruction);
	else
		printf("  %s: no such instruction", what);
}

static const char *processor(struct ct_device_info *info)
{
	ct_device *device;

	*info = (struct ct_device_info){0};
	if (ct_device_open("cpu", 0, &device) == CT_OK) {
		if (ct_device_info(device, info) < 0)
			ct_error_clear();
		ct_device_close(device);
	}
	return info->name;
}

static void print_head(const struct bench *b)
{
	struct ct_device_info info;

	printf("%s\n%s, %lldx%lld%s, batch %lld, threads %lld, %s, %s\n", processor(&info), b->model,
	       (long long)b->size, (long long)b->size, b->small_stem ? ", small stem" : "", (long long)b->batch,
	       (long long)b->threads, b->bf16 ? "bf16" : "fp32", ct__dnnl_version());
	for (int i = 0; i < b->n_peaks; i++) {
		printf("peak, threads %d:", b->peaks[i].threads);
		print_rate("fp32", b->peaks[i].fp32, fma_peak_instruction(false));
		print_rate("bf16", b->peaks[i].bf16, fma_peak_instruction(true));
		putchar('\n');
	}
	printf("memcpy, threads %lld: %.1f GB/s\n\n", (long long)b->threads, b->memory * 1e-9);
}

static void print_layer(const struct layer *l)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "%dx%dx%d -> %d %dx%d", l->in.c, l->in.h, l->in.w, l->out.c, l->win.r,
			 l->win.s);

	if (l->win.stride_h > 1)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " /%d", l->win.stride_h);
	if (l->groups > 1)
		snprintf(text + n, sizeof(text) - (size_t)n, " g%d", l->groups);
	printf("%-32s %6d %7.2f", text, l->count, l->flop * 1e-9);
	for (int pass = 0; pass < N_PASSES; pass++) {
		fputs(" |", stdout);
		print_pass(l, pass);
	}
	putchar('\n');
}

void conv_peak_print_table(const struct bench *b)
{
	const struct sums sum = add_up(b);

	print_head(b);
	printf("%-39s %7s |%-31s|%-31s|%-31s\n", "", "", " forward, ms", " backward-data", " backward-weights");
	printf("%-32s %6s %7s", "convolution", "times", "GFLOP");
	for (int pass = 0; pass < N_PASSES; pass++)
		printf(" |%8s %6s %8s %6s", "direct", "GF/s", "winograd", "GF/s");
	putchar('\n');
	for (int i = 0; i < b->n_layers; i++)
		print_layer(&b->layers[i]);
	printf("\nAll convolutions of a step, %.1f GFLOP:\n", sum.flop * 1e-9);
	if (sum.peak > 0)
		print_sum(&sum, "at the peak of the multipliers", sum.peak);
	print_sum(&sum, "bound: peak or memcpy's rate, the slower", sum.bound);
	print_sum(&sum, "direct only", sum.direct);
	print_sum(&sum, "Winograd wherever usable, as the engine does", sum.engine);
	print_sum(&sum, "each at its best", sum.best);
	printf("The threads ran for %.0f %% of the time: the less, the more other programs are in these figures.\n",
	       100 * cpu_share(b));
}

static ct_json *pass_json(const struct layer *l, const struct pass *p)
{
	static const char *const names[N_WAYS][2] = {{"direct_ms", "direct_gflops_per_sec"},
						     {"winograd_ms", "winograd_gflops_per_sec"}};
	ct_json *o = ct_json_object();

	for (int way = 0; way < N_WAYS; way++) {
		if (p->s[way] <= 0)
			continue;
		ct_json_set_f64(o, names[way][0], p->s[way] * 1e3);
		ct_json_set_f64(o, names[way][1], l->flop / p->s[way] * 1e-9);
	}
	ct_json_set_str(o, "implementation", p->impl);
	ct_json_set_f64(o, "bytes", p->bytes);
	return o;
}

static ct_json *layer_json(const struct layer *l)
{
	const struct {
		const char *key;
		int value;
	} numbers[] = {{"count", l->count},    {"channels", l->in.c},       {"height", l->in.h},
		       {"width", l->in.w},     {"outputs", l->out.c},       {"kernel_h", l->win.r},
		       {"kernel_w", l->win.s}, {"stride", l->win.stride_h}, {"groups", l->groups}};
	ct_json *o = ct_json_object();

	ct_json_set_str(o, "name", l->name);
	for (size_t i = 0; i < CT_ARRAY_LEN(numbers); i++)
		ct_json_set_i64(o, numbers[i].key, numbers[i].value);
	ct_json_set_f64(o, "gflop", l->flop * 1e-9);
	for (int pass = 0; pass < N_PASSES; pass++) {
		if (l->passes[pass].s[DIRECT] > 0)
			ct_json_set(o, conv_peak_pass_name(pass), pass_json(l, &l->passes[pass]));
	}
	return o;
}

static ct_json *sums_json(const struct bench *b)
{
	const struct sums sum = add_up(b);
	ct_json *o = ct_json_object();

	ct_json_set_f64(o, "gflop", sum.flop * 1e-9);
	if (sum.peak > 0) {
		ct_json_set_f64(o, "peak_ms", sum.peak * 1e3);
		ct_json_set_f64(o, "direct_share", sum.peak / sum.direct);
		ct_json_set_f64(o, "engine_share", sum.peak / sum.engine);
		ct_json_set_f64(o, "best_share", sum.peak / sum.best);
	}
	ct_json_set_f64(o, "bound_ms", sum.bound * 1e3);
	ct_json_set_f64(o, "direct_ms", sum.direct * 1e3);
	ct_json_set_f64(o, "engine_ms", sum.engine * 1e3);
	ct_json_set_f64(o, "best_ms", sum.best * 1e3);
	return o;
}

enum ct_status conv_peak_print_json(const struct bench *b)
{
	ct_json *j = ct_json_object(), *peaks = ct_json_array(), *layers = ct_json_array();
	struct ct_str text = {0};
	struct ct_device_info info;

	ct_json_set_str(j, "bench", "conv_peak");
	ct_json_set_str(j, "model", b->model);
	ct_json_set_str(j, "processor", processor(&info));
	ct_json_set_str(j, "library", ct__dnnl_version());
	ct_json_set_i64(j, "size", b->size);
	ct_json_set_bool(j, "small_stem", b->small_stem);
	ct_json_set_i64(j, "batch", b->batch);
	ct_json_set_i64(j, "threads", b->threads);
	ct_json_set_str(j, "precision", b->bf16 ? "bf16" : "fp32");
	for (int i = 0; i < b->n_peaks; i++) {
		ct_json *o = ct_json_object();

		ct_json_set_i64(o, "threads", b->peaks[i].threads);
		ct_json_set_f64(o, "fp32_gflops_per_sec", b->peaks[i].fp32 * 1e-9);
		ct_json_set_f64(o, "bf16_gflops_per_sec", b->peaks[i].bf16 * 1e-9);
		ct_json_push(peaks, o);
	}
	ct_json_set(j, "peaks", peaks);
	ct_json_set_f64(j, "memcpy_gb_per_sec", b->memory * 1e-9);
	ct_json_set_f64(j, "cpu_share", cpu_share(b));
	for (int i = 0; i < b->n_layers; i++)
		ct_json_push(layers, layer_json(&b->layers[i]));
	ct_json_set(j, "layers", layers);
	ct_json_set(j, "step", sums_json(b));
	enum ct_status st = ct_json_dump(j, false, &text);
	if (st == CT_OK)
		puts(ct_str_text(&text));
	ct_str_release(&text);
	ct_json_destroy(j);
	return st;
}
