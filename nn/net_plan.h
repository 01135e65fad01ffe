/* The plan of a net: the layout in which an engine stores images, and how it computes each pass of each convolution.
 * Which plan is the fastest depends on the processor. Plans differ in the last bits of their results: the same config,
 * the same kind of machine and the same plan give the same weights.
 *
 * A plan is written as lines of text:
 *
 *   ctrain plan 1
 *   layout blocked
 *   conv layer1.0.conv1 winograd winograd direct
 *
 * The three methods of a convolution are those of the forward pass, of the gradient of the input, and of the gradient
 * of the weights. Convolutions that are not listed are computed directly in all passes. */
#ifndef CT_NN_NET_PLAN_H
#define CT_NN_NET_PLAN_H

#include "base/choice.h"
#include "base/mem.h"

/* BLOCKED: [N,C/B,H,W,B], where the engine chooses the size B of the blocks. NHWC: [N,H,W,C]. An engine may store
 * single tensors in another layout, for example the input. */
#define CT_PLAN_LAYOUTS(X) X(CT_LAYOUT_BLOCKED, "blocked") X(CT_LAYOUT_NHWC, "nhwc")
enum ct_plan_layout { CT_PLAN_LAYOUTS(CT_CHOICE_ID) };

/* DIRECT: as the library of the engine does. WINOGRAD: minimal filtering (nn/onednn/winograd/winograd.h). GEMM: the
 * gradient of the weights as products of matrices, in bfloat16 and NHWC (nn/onednn/kernels/weights_gemm.h). */
#define CT_CONV_METHODS(X) X(CT_CONV_DIRECT, "direct") X(CT_CONV_WINOGRAD, "winograd") X(CT_CONV_GEMM, "gemm")
enum ct_conv_method { CT_CONV_METHODS(CT_CHOICE_ID) };
enum { CT_CONV_N_METHODS = CT_CHOICE_COUNT(CT_CONV_METHODS) };

enum ct_conv_pass { CT_CONV_FORWARD, CT_CONV_BACKWARD_DATA, CT_CONV_BACKWARD_WEIGHTS, CT_CONV_PASSES };

/* The number of convolutions that a plan may list. */
#define CT_PLAN_MAX_CONVS 4096

struct ct_plan_conv {
	char *name; /* of the node */
	enum ct_conv_method method[CT_CONV_PASSES];
};

/* A zero-initialized plan is valid: blocked, with direct convolutions. */
struct ct_net_plan {
	enum ct_plan_layout layout;
	struct ct_plan_conv *convs; /* those of which a pass is not direct */
	int n_convs, cap_convs;
};

const char *ct_conv_method_name(enum ct_conv_method m);

void ct_net_plan_release(struct ct_net_plan *p);
enum ct_status ct_net_plan_copy(const struct ct_net_plan *from, struct ct_net_plan *out) CT_MUST_CHECK;
/* Sets the method of one pass of the convolution `name`. If the plan already lists CT_PLAN_MAX_CONVS others, the pass
 * stays direct. */
enum ct_status ct_net_plan_set(struct ct_net_plan *p, const char *name, enum ct_conv_pass pass,
			       enum ct_conv_method method) CT_MUST_CHECK;
enum ct_conv_method ct_net_plan_method(const struct ct_net_plan *p, const char *name, enum ct_conv_pass pass);
/* Returns whether a pass of the convolution is computed with this method. */
bool ct_net_plan_uses(const struct ct_net_plan *p, const char *name, enum ct_conv_method method);

void ct_net_plan_write(const struct ct_net_plan *p, struct ct_str *out);
/* Parses a plan. Fails with CT_CONFIG; the message begins with `source`, for example the name of a file, and the number
 * of the line. *out must be zero-initialized; it is released on failure. */
enum ct_status ct_net_plan_parse(const char *text, const char *source, struct ct_net_plan *out) CT_MUST_CHECK;
/* Reads a plan from a file. Also fails as ct_file_read does. */
enum ct_status ct_net_plan_read(const char *path, struct ct_net_plan *out) CT_MUST_CHECK;
/* Computes the hexadecimal SHA-256 of the text of the plan. */
enum ct_status ct_net_plan_digest(const struct ct_net_plan *p, char hex[65]) CT_MUST_CHECK;
const char *ct_plan_layout_name(enum ct_plan_layout layout);
/* Finds the convolutions that two plans do not compute by the same methods in all passes. *names: [*n] owned by the
 * caller; the names themselves are borrowed from the plans. */
enum ct_status ct_net_plan_compare(const struct ct_net_plan *a, const struct ct_net_plan *b, const char ***names,
				   int *n) CT_MUST_CHECK;
/* Describes a plan in a few words: "nhwc, direct", or "blocked, 16 of 53 convolutions with winograd" if the graph has
 * 53 convolutions. */
void ct_net_plan_summary(const struct ct_net_plan *p, int convolutions, char *text, size_t len);

#endif
