/* Facts about a GPU without ctrain: versions, properties, the description that cuDNN uses for queries without a GPU,
 * bandwidths, and the costs of posting work. Each fact is one line of JSON on standard output, with the fields of a row
 * of the gate (bench/gpu/gate.py).
 *
 * usage: gpu_facts [--quick]   --quick: little memory and few repetitions, for the software GPU */
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"

enum { DESCRIPTION_BYTES = 1 << 16, MAX_REPEATS = 15 };

struct facts {
	size_t bytes; /* size of a copy: several times the L2 cache of a GPU */
	int repeats;  /* the median of so many times is printed */
	int copies;   /* number of copies between two events */
	int launches; /* number of small operations between two events, and of nodes in a graph */
	cudaStream_t stream;
	cudaEvent_t begin, end;
	char *host, *a, *b; /* pinned memory and device memory [bytes] */
};

#define check(call) check_error((call), #call, __LINE__)
static void check_error(cudaError_t e, const char *call, int line)
{
	if (e != cudaSuccess) {
		fprintf(stderr, "gpu_facts.c:%d: %s: %s\n", line, call, cudaGetErrorString(e));
		exit(1);
	}
}

/* Prints a row and releases it. The caller has set "value". */
static void print_row(ct_json *row, const char *fact, const char *status, const char *unit, const char *note)
{
	struct ct_str text = {0};

	ct_json_set_str(row, "check", fact);
	ct_json_set_str(row, "status", status);
	ct_json_set_str(row, "unit", unit);
	ct_json_set_str(row, "note", note);
	if (ct_json_dump(row, false, &text) == CT_OK)
		puts(ct_str_text(&text));
	fflush(stdout);
	ct_str_release(&text);
	ct_json_destroy(row);
}

static void print_text(const char *fact, const char *value)
{
	ct_json *row = ct_json_object();

	ct_json_set_str(row, "value", value);
	print_row(row, fact, "measured", "", "");
}

static void print_integer(const char *fact, int64_t value, const char *unit)
{
	ct_json *row = ct_json_object();

	ct_json_set_i64(row, "value", value);
	print_row(row, fact, "measured", unit, "");
}

static void print_number(const char *fact, double value, const char *unit, const char *note)
{
	ct_json *row = ct_json_object();

	ct_json_set_f64(row, "value", value);
	print_row(row, fact, "measured", unit, note);
}

static void print_properties(void)
{
	static const struct {
		const char *name, *unit;
		enum cudaDeviceAttr attribute;
	} attributes[] = {
		{"multiprocessors", "", cudaDevAttrMultiProcessorCount},
		{"L2 cache", "bytes", cudaDevAttrL2CacheSize},
		{"clock rate", "kHz", cudaDevAttrClockRate},
		{"memory clock rate", "kHz", cudaDevAttrMemoryClockRate},
		{"memory bus width", "bits", cudaDevAttrGlobalMemoryBusWidth},
		{"copy engines", "", cudaDevAttrAsyncEngineCount},
		{"shared memory of a block", "bytes", cudaDevAttrMaxSharedMemoryPerBlockOptin},
	};
	struct cudaDeviceProp p;
	size_t available = 0, total = 0;
	int runtime = 0, driver = 0, value;
	char text[256];

	check(cudaGetDeviceProperties(&p, 0));
	check(cudaRuntimeGetVersion(&runtime));
	check(cudaDriverGetVersion(&driver));
	check(cudaMemGetInfo(&available, &total));
	print_text("card", p.name);
	snprintf(text, sizeof(text), "runtime %d.%d, driver %d.%d, cuDNN %zu", runtime / 1000, runtime % 1000 / 10,
		 driver / 1000, driver % 1000 / 10, cudnnGetVersion());
	print_text("versions", text);
	snprintf(text, sizeof(text), "%d.%d", p.major, p.minor);
	print_text("compute capability", text);
	print_integer("memory", (int64_t)total, "bytes");
	print_integer("free memory", (int64_t)available, "bytes");
	for (size_t i = 0; i < CT_ARRAY_LEN(attributes); i++) {
		if (cudaDeviceGetAttribute(&value, attributes[i].attribute, 0) == cudaSuccess)
			print_integer(attributes[i].name, value, attributes[i].unit);
		else
			(void)cudaGetLastError();
	}
}

/* What cuDNN wants to know of the device when it is asked for plans on a machine without this GPU. */
static void print_description(void)
{
	cudnnBackendDescriptor_t d = NULL;
	char *text = CT_NEW_ARRAY(char, DESCRIPTION_BYTES);
	ct_json *row = ct_json_object();
	const int32_t device = 0;
	int64_t n = 0;
	cudnnStatus_t st = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);

	if (st == CUDNN_STATUS_SUCCESS)
		st = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device);
	if (st == CUDNN_STATUS_SUCCESS)
		st = cudnnBackendFinalize(d);
	if (st == CUDNN_STATUS_SUCCESS && text)
		st = cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
					      DESCRIPTION_BYTES - 1, &n, text);
	if (st == CUDNN_STATUS_SUCCESS && text && n > 0) {
		ct_json_set_str(row, "value", text);
		print_row(row, "device json", "measured", "", "");
	} else {
		print_row(row, "device json", "not available", "",
			  st == CUDNN_STATUS_SUCCESS ? "cuDNN describes no device" : cudnnGetErrorString(st));
	}
	cudnnBackendDestroyDescriptor(d);
	ct_free(text);
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median time of one call of `post`, in seconds on the device; *host_s is the median time that the host needs to
 * post it. */
static double time_of(struct facts *f, int calls, void (*post)(struct facts *f), double *host_s)
{
	double device[MAX_REPEATS], host[MAX_REPEATS];
	float ms = 0;

	for (int r = -1; r < f->repeats; r++) { /* the first is not counted */
		check(cudaEventRecord(f->begin, f->stream));
		const int64_t start = ct_now_ns();
		for (int i = 0; i < calls; i++)
			post(f);
		const double posted = ct_seconds_since(start);
		check(cudaEventRecord(f->end, f->stream));
		check(cudaStreamSynchronize(f->stream));
		check(cudaEventElapsedTime(&ms, f->begin, f->end));
		if (r >= 0) {
			device[r] = (double)ms * 1e-3 / calls;
			host[r] = posted / calls;
		}
	}
	qsort(device, (size_t)f->repeats, sizeof(*device), compare);
	qsort(host, (size_t)f->repeats, sizeof(*host), compare);
	if (host_s)
		*host_s = host[f->repeats / 2];
	return device[f->repeats / 2];
}

static void post_upload(struct facts *f)
{
	check(cudaMemcpyAsync(f->a, f->host, f->bytes, cudaMemcpyHostToDevice, f->stream));
}

static void post_download(struct facts *f)
{
	check(cudaMemcpyAsync(f->host, f->a, f->bytes, cudaMemcpyDeviceToHost, f->stream));
}

static void post_copy(struct facts *f)
{
	check(cudaMemcpyAsync(f->b, f->a, f->bytes, cudaMemcpyDeviceToDevice, f->stream));
}

static void post_fill(struct facts *f)
{
	check(cudaMemsetAsync(f->b, 0, f->bytes, f->stream));
}

static void post_small(struct facts *f)
{
	check(cudaMemsetAsync(f->b, 0, 4, f->stream));
}

static void print_bandwidths(struct facts *f)
{
	static const struct {
		const char *name;
		void (*post)(struct facts *f);
		int bytes; /* read and written by the device's memory for each byte of the size */
		const char *note;
	} copies[] = {
		{"pinned host to device", post_upload, 1, ""},
		{"device to pinned host", post_download, 1, ""},
		{"device to device", post_copy, 2, "bytes read and bytes written"},
		{"fill", post_fill, 1, ""},
	};

	for (size_t i = 0; i < CT_ARRAY_LEN(copies); i++) {
		const double s = time_of(f, f->copies, copies[i].post, NULL);

		print_number(copies[i].name, (double)f->bytes * copies[i].bytes / s * 1e-9, "GB/s", copies[i].note);
	}
}

/* The costs that bound a step of a small model: of an operation, of a node of a graph, and of a wait of the host. */
static void print_costs(struct facts *f)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	double host, device = time_of(f, f->launches, post_small, &host), round_trip[MAX_REPEATS];
	float ms;

	print_number("posting a small operation, host", host * 1e6, "us", "");
	print_number("posting a small operation, device", device * 1e6, "us", "");
	check(cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < f->launches; i++)
		post_small(f);
	check(cudaStreamEndCapture(f->stream, &graph));
	check(cudaGraphInstantiate(&exec, graph, 0));
	for (int r = -1; r < f->repeats; r++) {
		check(cudaEventRecord(f->begin, f->stream));
		check(cudaGraphLaunch(exec, f->stream));
		check(cudaEventRecord(f->end, f->stream));
		check(cudaStreamSynchronize(f->stream));
		check(cudaEventElapsedTime(&ms, f->begin, f->end));
		if (r >= 0)
			round_trip[r] = (double)ms * 1e-3 / f->launches;
	}
	qsort(round_trip, (size_t)f->repeats, sizeof(*round_trip), compare);
	print_number("node of a replayed graph, device", round_trip[f->repeats / 2] * 1e6, "us", "");
	for (int r = 0; r < f->repeats; r++) {
		const int64_t start = ct_now_ns();

		check(cudaGraphLaunch(exec, f->stream));
		round_trip[r] = ct_seconds_since(start);
		check(cudaStreamSynchronize(f->stream));
	}
	qsort(round_trip, (size_t)f->repeats, sizeof(*round_trip), compare);
	print_number("launching a graph, host", round_trip[f->repeats / 2] * 1e6, "us", "");
	for (int r = 0; r < f->repeats; r++) {
		const int64_t start = ct_now_ns();

		post_small(f);
		check(cudaStreamSynchronize(f->stream));
		round_trip[r] = ct_seconds_since(start);
	}
	qsort(round_trip, (size_t)f->repeats, sizeof(*round_trip), compare);
	print_number("posting and waiting", round_trip[f->repeats / 2] * 1e6, "us", "");
	check(cudaGraphExecDestroy(exec));
	check(cudaGraphDestroy(graph));
}

int main(int argc, char **argv)
{
	const bool quick = argc == 2 && strcmp(argv[1], "--quick") == 0;
	struct facts f = {.bytes = (size_t)1 << 30, .repeats = MAX_REPEATS, .copies = 4, .launches = 200};

	if (argc > 2 || (argc == 2 && !quick)) {
		fprintf(stderr, "usage: gpu_facts [--quick]\n");
		return 2;
	}
	if (quick)
		f = (struct facts){.bytes = (size_t)1 << 20, .repeats = 3, .copies = 2, .launches = 10};
	check(cudaSetDevice(0));
	print_properties();
	print_description();
	check(cudaStreamCreateWithFlags(&f.stream, cudaStreamNonBlocking));
	check(cudaEventCreate(&f.begin));
	check(cudaEventCreate(&f.end));
	check(cudaMallocHost((void **)&f.host, f.bytes));
	check(cudaMalloc((void **)&f.a, f.bytes));
	check(cudaMalloc((void **)&f.b, f.bytes));
	memset(f.host, 1, f.bytes);
	print_bandwidths(&f);
	print_costs(&f);
	check(cudaFree(f.b));
	check(cudaFree(f.a));
	check(cudaFreeHost(f.host));
	check(cudaEventDestroy(f.end));
	check(cudaEventDestroy(f.begin));
	check(cudaStreamDestroy(f.stream));
	return 0;
}
