/* The operation graphs of an engine and the plan that is chosen for each of them.
 *
 * A program adds its graphs while it is compiled (ct__cudnn_choices_add). Graphs with the same string form and the same
 * filter are one choice, also in several programs. When all graphs of the program are known, ct__cudnn_choices_make
 * chooses a plan for each graph that does not have one yet.
 *
 * Without tuning, this is the first plan that the heuristics of cuDNN propose and the filter allows. With tuning, it is
 * the plan in the plan cache (nn/plan_cache.h) or, if there is none, the fastest one (timing.h), which is then added to
 * the cache. Plans differ in the last bits of their results, so the cache is what makes a second run repeat the first
 * one, and what makes the ranks of a host agree: they divide the graphs, and each finds the choices of the others in
 * the cache. The cache is saved every few seconds and after an error. If it cannot be written, CT_AUTOTUNE_AUTO does
 * not tune; if this shows only later, each process tunes the rest alone. CT_AUTOTUNE_CACHED never tunes, but uses the
 * plans in the cache. */
#ifndef CT_NN_CUDA_TUNE_CHOICE_H
#define CT_NN_CUDA_TUNE_CHOICE_H

#include "nn/cuda/tune/timing.h"
#include "nn/engine.h"

enum { CT__CUDNN_NAME_MAX = 96 };

typedef struct ct__cudnn_choices ct__cudnn_choices;

struct ct__cudnn_choice {
	char name[CT__CUDNN_NAME_MAX]; /* of the layer that added the graph first, for messages */
	ct__cudnn_graph *graph;
	struct ct__cudnn_filter filter;
	ct__cudnn_plan *plan;               /* NULL until ct__cudnn_choices_make */
	char refused[CT__CUDNN_CONFIG_MAX]; /* the entry of the cache whose plan could not be made, or "" */
};

enum ct_status ct__cudnn_choices_create(ct__cudnn_choices **out) CT_MUST_CHECK;
/* Also destroys the graphs and plans. NULL is allowed. */
void ct__cudnn_choices_destroy(ct__cudnn_choices *c);

/* Takes ownership of g in every case and finishes it. `name` is that of the layer. *out is owned by c and stays at its
 * address. */
enum ct_status ct__cudnn_choices_add(ct__cudnn_choices *c, const char *name, ct__cudnn_graph *g,
				     const struct ct__cudnn_filter *filter,
				     const struct ct__cudnn_choice **out) CT_MUST_CHECK;
/* Sets *known if there is such a choice, also one of a start before this one, unless tuning is off. g need not be
 * finished. */
enum ct_status ct__cudnn_choices_know(ct__cudnn_choices *c, const ct__cudnn_graph *g,
				      const struct ct__cudnn_filter *filter, enum ct_autotune tune, ct_device *device,
				      bool *known) CT_MUST_CHECK;
/* Returns the file of the plan cache, or NULL if it is not used. */
const char *ct__cudnn_choices_path(const ct__cudnn_choices *c);
/* The choices in the order in which they were added. */
size_t ct__cudnn_choices_count(const ct__cudnn_choices *c);
const struct ct__cudnn_choice *ct__cudnn_choices_at(const ct__cudnn_choices *c, size_t i);
/* Fails with CT_UNSUPPORTED if a graph has no plan that its filter allows; the message contains the name and the string
 * form. On failure, the choices that have no plan are destroyed. */
enum ct_status ct__cudnn_choices_make(ct__cudnn_choices *c, const ct__cudnn_target *t, enum ct_autotune tune,
				      const struct ct__timing *where) CT_MUST_CHECK;
/* Posts the plan of a choice of c. If it has never been executed and cuDNN refuses it, also after it was made again
 * (ct__plan_execute), this posts the next plan that cuDNN proposes for the graph and that needs no more workspace, and
 * keeps it, with a warning. */
enum ct_status ct__cudnn_choices_execute(ct__cudnn_choices *c, const struct ct__cudnn_choice *one,
					 const struct ct__timing *where, const ct__cudnn_pack *pack) CT_MUST_CHECK;

#endif
