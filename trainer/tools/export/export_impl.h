/* The formats of export.c. */
#ifndef CT_TRAINER_TOOLS_EXPORT_EXPORT_IMPL_H
#define CT_TRAINER_TOOLS_EXPORT_EXPORT_IMPL_H

#include "infer/description.h"
#include "nn/graph/op.h"
#include "trainer/run/checkpoint/whole.h"

/* A model with its values in host memory: those of whole->groups[0]. */
struct ct_export_model {
	const struct ct_description *description;
	const ct_graph *graph;
	const struct ct_whole *whole;
};

/* Returns the values of parameter or buffer `id` in the logical layout. */
const float *ct__export_param(const struct ct_export_model *m, int id);
const float *ct__export_buffer(const struct ct_export_model *m, int id);

/* Where the value of a node is in an exported graph, which has no operations that are the identity in evaluation, and
 * which has values of rank 2 ([N,F], after linear layers and flatten) as well as 4 ([N,C,H,W]). */
struct ct_export_value {
	int node;  /* the node whose operation computes the value: the node itself, unless it is an identity */
	bool flat; /* of rank 2 */
};
/* Fills values [n nodes]. */
void ct__export_values(const ct_graph *g, struct ct_export_value *values);
/* Returns whether node n, which computes `value`, needs its inputs in rank 2. */
bool ct__export_is_flat(const struct ct_node *n, const struct ct_export_value *value);
/* Whether the graph has to normalize its input. */
bool ct__export_normalizes(const struct ct_description *d);
/* Describes the input for readers: "float32 [N,3,32,32]: RGB images, values from 0 to 1; the model normalizes them". */
void ct__export_describe_input(const struct ct_description *d, struct ct_str *out);

/* Copies weights, a checkpoint directory or a .safetensors file, to a safetensors file. d may be NULL. */
enum ct_status ct__export_safetensors(const char *weights, const struct ct_description *d, const char *path,
				      struct ct_str *report) CT_MUST_CHECK;
/* Append the contents of the file. */
enum ct_status ct__export_python(const struct ct_export_model *m, const char *weights_name,
				 struct ct_str *out) CT_MUST_CHECK; /* weights_name: a file next to the module */
enum ct_status ct__export_onnx(const struct ct_export_model *m, struct ct_str *out) CT_MUST_CHECK;

#endif
