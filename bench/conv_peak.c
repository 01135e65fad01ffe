/* Measures only the convolutions of a model, in the forward pass and both backward passes, with warm buffers. The
 * result is the reference for the time of a training step. Each distinct convolution is computed by oneDNN's direct
 * implementation, in the layouts that oneDNN chooses, and also by nn/onednn/winograd/winograd.h where that is
 * applicable. FLOPs are those of the direct algorithm in both cases, so Winograd may exceed the peak rate. The peak
 * rate of multiply-adds on registers and the bandwidth of memcpy are measured with the same threads. Prints a table on
 * standard output or, with --json, one JSON object.
 *
 *   build/release/bench/conv_peak MODEL SIZE BATCH THREADS fp32|bf16 [--small-stem] [--rounds N] [--isa SET] [--json]
 *   build/release/bench/conv_peak resnet50 224 16 2 fp32
 *   build/release/bench/conv_peak resnet18 32 128 2 bf16 --small-stem
 *
 * SET limits the instructions as train.isa does. Each time is the best of at least N runs (default 5) that together
 * take at least 20 N ms. Sums include all convolutions of a step, also repeated ones; the first convolution has no
 * backward-data pass. For each layer, "bound" is the larger of two times: that of its FLOPs at the peak rate, and that
 * of moving each tensor once between memory and the cores. It is too pessimistic if a tensor is still in a cache. */
#include "bench/conv_peak.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/mem.h"
#include "nn/models/model.h"

static enum ct_status parse(int argc, char **argv, struct bench *b)
{
	struct {
		int64_t *to, most;
	} numbers[] = {{&b->size, 4096}, {&b->batch, 65536}, {&b->threads, MAX_THREADS}, {&b->rounds, 1000000}};
	const char *words[4] = {0};

	*b = (struct bench){.rounds = 5};
	if (argc < 6)
		return CT_FAIL(CT_USAGE, "MODEL SIZE BATCH THREADS fp32|bf16 are wanted");
	b->model = argv[1];
	memcpy(words, argv + 2, 3 * sizeof(*words));
	if (strcmp(argv[5], "fp32") != 0 && strcmp(argv[5], "bf16") != 0)
		return CT_FAIL(CT_USAGE, "%s: the precision is fp32 or bf16", argv[5]);
	b->bf16 = !strcmp(argv[5], "bf16");
	for (int i = 6; i < argc; i++) {
		if (!strcmp(argv[i], "--small-stem"))
			b->small_stem = true;
		else if (!strcmp(argv[i], "--json"))
			b->json = true;
		else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			words[3] = argv[++i];
		else if (!strcmp(argv[i], "--isa") && i + 1 < argc && ct_isa_find(argv[i + 1]) >= 0)
			CT_TRY(ct_cpu_set_limit((enum ct_isa)ct_isa_find(argv[++i])));
		else
			return CT_FAIL(CT_USAGE, "%s: no such option, or it wants a value", argv[i]);
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(numbers); i++) {
		if (words[i])
			CT_TRY(ct_parse_i64(words[i], numbers[i].to));
		if (*numbers[i].to < 1 || *numbers[i].to > numbers[i].most)
			return CT_FAIL(CT_USAGE, "%s: not within 1 and %lld", words[i], (long long)numbers[i].most);
	}
	return CT_OK;
}

/* The model's distinct convolutions. */
static bool same(const struct layer *a, const struct layer *b)
{
	return !memcmp(&a->in, &b->in, sizeof(a->in)) && !memcmp(&a->out, &b->out, sizeof(a->out)) &&
	       !memcmp(&a->win, &b->win, sizeof(a->win)) && a->groups == b->groups && a->bias == b->bias &&
	       a->needs_data == b->needs_data;
}

static void add_layer(struct bench *b, const struct ct_graph *g, int id)
{
	const struct ct_node *node = ct_graph_node(g, id);
	struct layer *at = b->layers, l = {.in = ct_graph_node(g, node->in[0])->shape,
					   .out = node->shape,
					   .win = node->win,
					   .groups = node->groups,
					   .bias = node->bias >= 0,
					   .needs_data = node->in[0] > 0,
					   .flop = ct_graph_node_flops(g, id) * (double)b->batch};

	while (at < b->layers + b->n_layers && !same(at, &l))
		at++;
	if (at == b->layers + b->n_layers) {
		memcpy(l.name, node->name, sizeof(l.name));
		*at = l;
		b->n_layers++;
	}
	at->count++;
}

static enum ct_status list_layers(struct bench *b)
{
	const struct ct_model_spec spec = {.name = b->model,
					   .input = {3, (int)b->size, (int)b->size},
					   .n_outputs = 1000,
					   .small_stem = b->small_stem};
	ct_graph *g;

	CT_TRY(ct_model_build(&spec, &g));
	const int n = ct_graph_n_nodes(g);
	b->layers = CT_NEW_ARRAY(struct layer, (size_t)n);
	for (int id = 1; b->layers && id < n; id++) {
		if (ct_graph_node(g, id)->op == CT_OP_CONV2D)
			add_layer(b, g, id);
	}
	ct_graph_destroy(g);
	CT_TRY_ALLOC(b->layers);
	return b->n_layers > 0 ? CT_OK : CT_FAIL(CT_USAGE, "%s: a model without convolutions", b->model);
}

static enum ct_status run(struct bench *b)
{
	CT_TRY(list_layers(b));
	if (b->bf16 && !ct__dnnl_has_bf16())
		return CT_FAIL(CT_UNSUPPORTED, "this processor has no bfloat16 instructions (avx512_bf16)");
	CT_TRY(ct__dnnl_open(&b->dnnl));
	CT_TRY(conv_peak_measure(b));
	if (b->json)
		return conv_peak_print_json(b);
	conv_peak_print_table(b);
	return CT_OK;
}

int main(int argc, char **argv)
{
	struct bench b;
	enum ct_status st = parse(argc, argv, &b);

	if (st == CT_OK)
		st = run(&b);
	ct__dnnl_close(b.dnnl);
	ct_free(b.layers);
	if (st == CT_OK)
		return 0;
	fprintf(stderr, "conv_peak: %s\n", ct_error_message());
	if (st == CT_USAGE)
		fputs("usage: conv_peak MODEL SIZE BATCH THREADS fp32|bf16 [--small-stem] [--rounds N] [--json]\n",
		      stderr);
	return ct_status_exit_code(st);
}
