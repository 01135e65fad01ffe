#include "nn/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

struct named {
	const char *name;
	int param;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static enum ct_status hash_params(const ct_net *net, const struct named *order, float *logical, struct ct_sha256 *h)
{
	enum ct_status st = CT_OK;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(net->params, CT_MIRROR_READ, net->engine->stream, &m));
	for (int i = 0; i < net->n_slices; i++) {
		const struct ct_param *p = ct_graph_param(net->graph, order[i].param);
		CT_TRY_GOTO(ct_net_export(net, &m, order[i].param, logical), st, out);
		ct_sha256_update(h, logical, p->n * sizeof(float));
	}
out:
	ct_mirror_drop(&m);
	return st;
}

enum ct_status ct_net_digest(const ct_net *net, char hex[65])
{
	struct named *order;
	struct ct_sha256 h;
	size_t largest = 1;

	CT_TRY_ALLOC(order = CT_NEW_ARRAY(struct named, (size_t)net->n_slices));
	for (int i = 0; i < net->n_slices; i++) {
		const struct ct_param *p = ct_graph_param(net->graph, i);
		order[i] = (struct named){p->name, i};
		largest = p->n > largest ? p->n : largest;
	}
	qsort(order, (size_t)net->n_slices, sizeof(*order), compare);
	enum ct_status st = CT_NOMEM;
	float *logical = CT_NEW_ARRAY(float, largest);
	if (logical) {
		ct_sha256_init(&h);
		st = hash_params(net, order, logical, &h);
		ct_sha256_final_hex(&h, hex);
	}
	ct_free(logical);
	ct_free(order);
	return st;
}

void ct_net_layout_digest(const ct_net *net, char hex[65])
{
	struct ct_sha256 h;
	char text[512], layout[256];

	ct_sha256_init(&h);
	int len = snprintf(text, sizeof(text), "%s %zu\n", net->engine->ops->name, net->arena_elems);
	ct_sha256_update(&h, text, (size_t)len);
	for (int i = 0; i < net->n_slices; i++) {
		const struct ct_slice *s = &net->slices[i];
		layout[0] = '\0';
		if (net->engine->ops->layout)
			net->engine->ops->layout(net, s->param, layout, sizeof(layout));
		len = snprintf(text, sizeof(text), "%s %zu %zu %s\n", ct_graph_param(net->graph, s->param)->name,
			       s->offset, s->n, layout);
		CT_ASSERT(len > 0 && (size_t)len < sizeof(text));
		ct_sha256_update(&h, text, (size_t)len);
	}
	ct_sha256_final_hex(&h, hex);
}
