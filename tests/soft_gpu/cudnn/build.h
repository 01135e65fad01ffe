/* Builds descriptors of cuDNN's backend API, for tests. Works with any library that implements this API: the stand-in
 * or the real library. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_BUILD_H
#define CT_TESTS_SOFT_GPU_CUDNN_BUILD_H

#include <cudnn_graph.h>
#include <stdbool.h>

struct library {
	cudnnStatus_t (*create)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
	cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t);
	cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
			     int64_t, const void *);
	cudnnStatus_t (*get)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
			     int64_t, int64_t *, void *);
	cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
	void (*last_error)(char *, size_t);
	size_t (*version)(void);
};
/* The library with which the program is linked. */
extern const struct library linked_library;
/* Loads a library. Returns NULL on success, else the reason for the failure. */
const char *load_library(const char *path, struct library *out);

/* The descriptors of one test. The first error is stored in `status`; after that, all calls do nothing. */
struct builder {
	const struct library *lib;
	cudnnStatus_t status;
	cudnnBackendDescriptor_t all[1024];
	int n;
	int64_t next_uid;
};
void builder_begin(struct builder *b, const struct library *lib);
/* Destroys all descriptors of the builder. */
void builder_end(struct builder *b);
cudnnBackendDescriptor_t make(struct builder *b, cudnnBackendDescriptorType_t type);
void set(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	 cudnnBackendAttributeType_t type, int64_t n, const void *values);
void set_i64(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value);
void set_type(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnDataType_t value);
void set_ref(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
	     cudnnBackendDescriptor_t value);
void finalize(struct builder *b, cudnnBackendDescriptor_t d);

/* A tensor [n,c,h,w], by default in the layout NHWC. uid 0: the next unused uid; alignment 0: 16 bytes. */
struct tensor_spec {
	int64_t dims[4];
	cudnnDataType_t type;
	bool is_virtual;
	int64_t uid, alignment;
	const int64_t *strides; /* NULL: NHWC */
};
cudnnBackendDescriptor_t make_tensor(struct builder *b, const struct tensor_spec *t);
cudnnBackendDescriptor_t simple_tensor(struct builder *b, int64_t n, int64_t c, int64_t h, int64_t w,
				       cudnnDataType_t type);
cudnnBackendDescriptor_t virtual_tensor(struct builder *b, int64_t n, int64_t c, int64_t h, int64_t w,
					cudnnDataType_t type);

enum direction { FORWARD, DATA, FILTER };
struct conv_spec {
	int64_t stride[2], pad[2], dilation[2];
};
cudnnBackendDescriptor_t make_window(struct builder *b, const struct conv_spec *s);
cudnnBackendDescriptor_t make_conv(struct builder *b, enum direction way, cudnnBackendDescriptor_t x,
				   cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y, const struct conv_spec *s);
/* result = alpha * convolution + beta * result */
cudnnBackendDescriptor_t make_scaled_conv(struct builder *b, enum direction way, cudnnBackendDescriptor_t x,
					  cudnnBackendDescriptor_t w, cudnnBackendDescriptor_t y,
					  const struct conv_spec *s, float alpha, float beta);
/* `second` is the input b of an operation with two inputs, or dy of a backward operation (`y` is then dx), or NULL.
 * `third` is the input t of BINARY_SELECT, or NULL. */
cudnnBackendDescriptor_t make_pointwise(struct builder *b, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x,
					cudnnBackendDescriptor_t second, cudnnBackendDescriptor_t third,
					cudnnBackendDescriptor_t y);
cudnnBackendDescriptor_t make_statistics(struct builder *b, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t sum,
					 cudnnBackendDescriptor_t square_sum);
cudnnBackendDescriptor_t make_graph(struct builder *b, int n, const cudnnBackendDescriptor_t *ops);

/* If json is NULL, makes device 0. */
cudnnBackendDescriptor_t make_device(struct builder *b, const char *json);
enum { MAX_CONFIGS = 96 };
/* Writes the configurations that the heuristic proposes to `configs` and returns their number. */
int64_t propose(struct builder *b, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
		cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs);

struct plan {
	cudnnBackendDescriptor_t descriptor;
	int64_t engine, workspace;
	unsigned numerical, behavior; /* bit n is set if the engine has note n */
	int64_t n_proposed, n_final;  /* number of proposed configurations, and of those that can be finalized */
};
/* Makes the plan of a configuration and returns the status. b->status does not change. */
cudnnStatus_t make_plan(struct builder *b, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t device,
			struct plan *out);
/* Returns the first plan that has all notes in `with` and none of those in `without`. If there is none, the descriptor
 * is NULL. */
struct plan find_plan(struct builder *b, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t device,
		      cudnnBackendHeurMode_t mode, unsigned with, unsigned without);
cudnnBackendDescriptor_t make_pack(struct builder *b, int n, const int64_t *uids, void *const *pointers,
				   void *workspace);

#endif
