/* What the files of conv_peak pass to each other. */
#ifndef CT_BENCH_CONV_PEAK_H
#define CT_BENCH_CONV_PEAK_H

#include "nn/graph/graph.h"
#include "nn/onednn/dnnl/shim.h"

enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS, N_PASSES };
enum { DIRECT, WINOGRAD, N_WAYS };
enum { MAX_THREADS = 1024, MAX_PEAKS = 16 };

struct layer {
	char name[64]; /* of the first node like it */
	struct ct_shape in, out;
	struct ct_window win;
	int groups, count;
	bool bias, needs_data;
	double flop; /* of one pass over the batch */
	struct pass {
		double s[N_WAYS]; /* 0: not measured */
		double bytes;     /* read and written at least */
		char impl[64];    /* oneDNN's */
	} passes[N_PASSES];
};

struct bench {
	const char *model;
	int64_t size, batch, threads, rounds;
	bool bf16, small_stem, json;
	ct_dnnl *dnnl;
	struct layer *layers;
	int n_layers, n_peaks;
	struct peak {
		int threads;
		double fp32, bf16; /* FLOP/s */
	} peaks[MAX_PEAKS];
	double memory;    /* bytes/s */
	double wall, cpu; /* seconds of all measured runs: on quiet cores cpu is near wall * threads */
};

/* "forward", "backward_data", "backward_weights" */
const char *conv_peak_pass_name(int pass);
/* The peaks of 1, 2, 4 ... threads, the memory's rate and all times of the layers. */
enum ct_status conv_peak_measure(struct bench *b) CT_MUST_CHECK;
/* On standard output */
void conv_peak_print_table(const struct bench *b);
enum ct_status conv_peak_print_json(const struct bench *b) CT_MUST_CHECK;

#endif
