/* The data structures and functions that the source files of conv_peak share. */
#ifndef CT_BENCH_CONV_PEAK_H
#define CT_BENCH_CONV_PEAK_H

#include "nn/graph/graph.h"
#include "nn/onednn/dnnl/shim.h"

enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS, N_PASSES };
enum { DIRECT, WINOGRAD, N_WAYS };
enum { MAX_THREADS = 1024, MAX_PEAKS = 16 };

struct layer {
	char name[64]; /* name of the first graph node with these parameters */
	struct ct_shape in, out;
	struct ct_window win;
	int groups, count;
	bool bias, needs_data;
	double flop; /* floating-point operations of one pass over the batch */
	struct pass {
		double s[N_WAYS]; /* best time in seconds; 0: not measured */
		double bytes;     /* minimum number of bytes read and written */
		char impl[64];    /* name of oneDNN's implementation */
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
	double memory;    /* memory bandwidth in bytes/s */
	double wall, cpu; /* seconds of all measured runs; on idle cores, cpu is close to wall * threads */
};

/* Returns "forward", "backward_data" or "backward_weights". */
const char *conv_peak_pass_name(int pass);
/* Measures the peak rates of 1, 2, 4, ... threads, the memory bandwidth, and all times of the layers. */
enum ct_status conv_peak_measure(struct bench *b) CT_MUST_CHECK;
/* Print the results on standard output. */
void conv_peak_print_table(const struct bench *b);
enum ct_status conv_peak_print_json(const struct bench *b) CT_MUST_CHECK;

#endif
