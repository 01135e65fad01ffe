/* Compares the tensors of a safetensors file with those of a model, by name, and imports them: for checkpoints and for weights
 * from elsewhere. */
#ifndef CT_TRAINER_CHECKPOINT_TENSOR_MATCH_IMPL_H
#define CT_TRAINER_CHECKPOINT_TENSOR_MATCH_IMPL_H

#include "base/mem.h"
#include "nn/engine.h"
#include "trainer/checkpoint/safetensors.h"

/* Tensors of one file that belong together. In the file their names are the prefix and the name in the model. */
struct ct_tensor_group {
	const char *prefix; /* "" or "exp_avg/" */
	bool has_buffers;   /* running statistics, too */
	/* Where ct__tensor_match_import puts them: arenas with the layout of the net's parameters and of its running
	 * statistics. NULL where nothing is imported. */
	ct_arena *params, *buffers;
};

/* Which tensors of the file may be there without belonging to a group. PyTorch's counters *.num_batches_tracked always may. */
struct ct_tensor_policy {
	bool others_allowed; /* those that begin with none of the groups' prefixes */
	const char *ignored; /* those that begin with this; NULL: none */
};

/* One kind of difference: how many tensors there are, and the first few of them in words. */
struct ct_tensor_list {
	int n;
	struct ct_str text;
};

struct ct_tensor_match {
	int n;      /* tensors of the model, over all groups */
	int loaded; /* of these, those that are in the file with the same shape and a floating-point type */
	int *at; /* [n] number of the tensor in the file, group after group, parameters before buffers; -1: not loaded */
	bool head_only; /* all that is not loaded belongs to the model's last layer with a weight */
	struct ct_tensor_list missing, misshaped, extra;
};

/* Compares; differences are not an error. On success the caller releases *out. */
enum ct_status ct__tensor_match(const ct_safetensors *s, const ct_graph *g, const struct ct_tensor_group *groups,
				int n_groups, struct ct_tensor_policy policy,
				struct ct_tensor_match *out) CT_MUST_CHECK;
void ct__tensor_match_release(struct ct_tensor_match *m);
/* No difference of any kind. */
bool ct__tensor_match_is_exact(const struct ct_tensor_match *m);
/* The differences: "2 have another shape or type: fc.bias is [1000], the model's is [10], ...; 1 is missing: ..." */
void ct__tensor_match_describe(const struct ct_tensor_match *m, struct ct_str *out);
/* Copies the tensors that match to their groups; others keep their values. */
enum ct_status ct__tensor_match_import(const struct ct_tensor_match *m, const ct_safetensors *s, ct_net *net,
				       const struct ct_tensor_group *groups, int n_groups) CT_MUST_CHECK;

/* Number in the file of the tensor that is called prefix and name, -1 when it is absent. */
int ct__tensor_find(const ct_safetensors *s, const char *prefix, const char *name);
/* The node of the model's last layer with a weight, which is the classifier; -1: there is none. */
int ct__tensor_head(const ct_graph *g);

#endif
