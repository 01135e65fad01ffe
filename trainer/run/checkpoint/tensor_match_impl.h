/* Compares the tensors of a safetensors file with those of a model, by name, and imports them. This is used for
 * checkpoints and for pretrained weights. */
#ifndef CT_TRAINER_RUN_CHECKPOINT_TENSOR_MATCH_IMPL_H
#define CT_TRAINER_RUN_CHECKPOINT_TENSOR_MATCH_IMPL_H

#include "base/mem.h"
#include "infer/safetensors.h"
#include "nn/engine.h"
#include "trainer/run/checkpoint/whole.h"

/* A group of tensors. The name of each tensor in the file is the prefix of the group followed by its name in the
 * model. */
struct ct_tensor_group {
	const char *prefix; /* "" or "exp_avg/" */
	bool has_buffers;   /* the group includes running statistics */
	/* The arenas to which ct__tensor_match_import copies the tensors. They have the layout of the net's parameters
	 * and of its running statistics. NULL if nothing is imported. */
	ct_arena *params, *buffers;
	const struct ct_whole_group *whole; /* the destination, if it is not NULL */
};

/* Tensors that may be in the file although they belong to no group. PyTorch's counters *.num_batches_tracked are always
 * allowed. */
struct ct_tensor_policy {
	bool others_allowed; /* allow names that begin with none of the groups' prefixes */
	const char *ignored; /* allow names that begin with this prefix, if it is not NULL */
};

/* One kind of difference: the number of tensors, and a description of the first few. */
struct ct_tensor_list {
	int n;
	struct ct_str text;
};

struct ct_tensor_match {
	int n;      /* number of tensors of the model, over all groups */
	int loaded; /* number of these that are in the file with the same shape and a floating-point type */
	int *at;    /* [n] index of the tensor in the file, or -1 if it is not loaded; ordered by group, with parameters
		       before buffers */
	bool head_only; /* true if all tensors that are not loaded belong to the model's last layer with a weight */
	struct ct_tensor_list missing, misshaped, extra;
};

/* Compares the tensors. Differences do not make this function fail. On success, the caller must release *out. */
enum ct_status ct__tensor_match(const ct_safetensors *s, const ct_graph *g, const struct ct_tensor_group *groups,
				int n_groups, struct ct_tensor_policy policy,
				struct ct_tensor_match *out) CT_MUST_CHECK;
void ct__tensor_match_release(struct ct_tensor_match *m);
/* Returns true if there is no difference of any kind. */
bool ct__tensor_match_is_exact(const struct ct_tensor_match *m);
/* Appends the differences: "2 have another shape or type: fc.bias is [1000], but the model's is [10], ...; 1 is
 * missing: ..." */
void ct__tensor_match_describe(const struct ct_tensor_match *m, struct ct_str *out);
/* Copies the matching tensors to the arenas of their groups, or to host memory. The other values do not change. g is
 * the graph that was compared. net may be NULL if no group has arenas. */
enum ct_status ct__tensor_match_import(const struct ct_tensor_match *m, const ct_safetensors *s, const ct_graph *g,
				       ct_net *net, const struct ct_tensor_group *groups, int n_groups) CT_MUST_CHECK;

/* Returns the index of the tensor in the file whose name is `prefix` followed by `name`, or -1 if there is none. */
int ct__tensor_find(const ct_safetensors *s, const char *prefix, const char *name);

#endif
