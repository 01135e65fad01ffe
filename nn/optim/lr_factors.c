/* Factors of the learning rate by parameter name: "PATTERN=FACTOR". The last = divides a rule. The last rule that
 * matches counts, so that a general rule may come before its exceptions. A rule that matches no parameter is an error,
 * because it is probably misspelled. The form of rules can be checked without a graph, before a model exists. Rules are
 * parsed again for every parameter; this happens only when an optimizer is created. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/optim/optim.h"

struct rule {
	char pattern[96];
	double factor;
};

static bool parse(const char *text, struct rule *out)
{
	const char *equals = strrchr(text, '=');
	char *end;

	if (!equals || equals == text || (size_t)(equals - text) >= sizeof(out->pattern))
		return false;
	snprintf(out->pattern, sizeof(out->pattern), "%.*s", (int)(equals - text), text);
	out->factor = strtod(equals + 1, &end);
	return end > equals + 1 && !*end && isfinite(out->factor) && out->factor > 0;
}

static bool matches_any(const ct_graph *g, const char *pattern)
{
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		if (ct_graph_param_matches(g, i, pattern))
			return true;
	}
	return false;
}

enum ct_status ct_lr_factors_check(const char *const *rules, int n, const ct_graph *g)
{
	for (int i = 0; i < n; i++) {
		struct rule r;

		if (!parse(rules[i], &r)) {
			CT_FAIL(CT_CONFIG, "\"%s\" is not a factor of the learning rate", rules[i]);
			return ct_error_hint("write PATTERN=FACTOR with a factor above 0, for example \"fc.*=10\"");
		}
		if (g && !matches_any(g, r.pattern)) {
			CT_FAIL(CT_CONFIG, "no parameter of the model matches \"%s\"", r.pattern);
			return ct_error_hint(
				"the names are %s ... %s; write * for any string, or backbone for all but the head",
				ct_graph_param(g, 0)->name, ct_graph_param(g, ct_graph_n_params(g) - 1)->name);
		}
	}
	return CT_OK;
}

double ct_lr_factor_of(const char *const *rules, int n, const ct_graph *g, int param)
{
	double factor = 1;

	for (int i = 0; i < n; i++) {
		struct rule r;

		if (parse(rules[i], &r) && ct_graph_param_matches(g, param, r.pattern))
			factor = r.factor;
	}
	return factor;
}
