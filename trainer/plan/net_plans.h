/* Plans of nets (nn/net_plan.h) from files, for training and for `ctrain plan`. */
#ifndef CT_TRAINER_PLAN_NET_PLANS_H
#define CT_TRAINER_PLAN_NET_PLANS_H

#include "nn/engine.h"
#include "trainer/config/config.h"

/* Parses a plan that the engine must be able to use for the graph. `source` names its origin in messages. Fails with
 * CT_CONFIG, or with CT_UNSUPPORTED if it is a plan for something else. *out is zeroed on failure. */
enum ct_status ct_plan_parse_net(const char *text, const char *source, const ct_engine *e, const ct_graph *g,
				 const struct ct_net_opts *opts, struct ct_net_plan *out) CT_MUST_CHECK;
/* Reads the file of train.plan. Fails as ct_plan_parse_net does, and with CT_IO. */
enum ct_status ct_plan_read_net(const struct ct_config *c, const ct_engine *e, const ct_graph *g,
				const struct ct_net_opts *opts, struct ct_net_plan *out) CT_MUST_CHECK;
/* Describes a plan for the graph in a few words, as ct_net_plan_summary does. */
void ct_plan_net_text(const struct ct_net_plan *p, const ct_graph *g, char *text, size_t len);

#endif
