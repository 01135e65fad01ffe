/* The digest of values covers the logical layout in the order of names, so equal weights have equal digests whatever
 * the engine, its layouts and the number of ranks. Names are compared byte by byte, independently of the locale.
 * Parameters are converted one at a time into one buffer; no copy of the model is made. Values are hashed in the byte
 * order of the machine.
 *
 * The digest of the layout covers everything that must be equal if arenas are summed element by element: the engine,
 * the total size, and the name, place, size and layout of each slice in the order of the arena. */
#include "nn/engine_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/sha256.h"
#include "base/mem.h"

struct named {
	const char *name;
	int param;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Gets the values of a parameter in the logical layout: *values points to them, or to `scratch`. */
typedef enum ct_status (*values_fn)(const void *user, int param, float *scratch, const float **values);

static enum ct_status hash(const ct_graph *g, values_fn get, const void *user, char hex[65])
{
	const size_t n = (size_t)ct_graph_n_params(g);
	struct ct_sha256 h;
	size_t largest = 1;
	enum ct_status st = CT_NOMEM;
	struct named *order;
	float *scratch;

	CT_TRY_ALLOC(order = CT_NEW_ARRAY(struct named, n));
	for (size_t i = 0; i < n; i++) {
		const struct ct_param *p = ct_graph_param(g, (int)i);

		order[i] = (struct named){p->name, (int)i};
		largest = p->n > largest ? p->n : largest;
	}
	qsort(order, n, sizeof(*order), compare);
	ct_sha256_init(&h);
	if ((scratch = CT_NEW_ARRAY(float, largest)))
		st = CT_OK;
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		const float *values = scratch;

		st = get(user, order[i].param, scratch, &values);
		if (st == CT_OK)
			ct_sha256_update(&h, values, ct_graph_param(g, order[i].param)->n * sizeof(float));
	}
	ct_sha256_final_hex(&h, hex);
	ct_free(scratch);
	ct_free(order);
	return st;
}

struct exporter {
	const ct_net *net;
	struct ct_mirror params;
};

static enum ct_status export(const void *user, int param, float *scratch, const float **values)
{
	const struct exporter *e = user;

	*values = scratch;
	return ct_net_export(e->net, &e->params, param, scratch);
}

enum ct_status ct_net_digest(const ct_net *net, char hex[65])
{
	struct exporter e = {.net = net};

	CT_TRY(ct_mirror_open(net->params, CT_MIRROR_READ, net->engine->stream, &e.params));
	enum ct_status st = hash(net->graph, export, &e, hex);
	ct_mirror_drop(&e.params);
	return st;
}

struct array {
	const ct_graph *graph;
	const float *values;
};

static enum ct_status from_array(const void *user, int param, float *scratch, const float **values)
{
	const struct array *a = user;

	(void)scratch;
	*values = a->values;
	for (int i = 0; i < param; i++)
		*values += ct_graph_param(a->graph, i)->n;
	return CT_OK;
}

enum ct_status ct_values_digest(const ct_graph *g, const float *values, char hex[65])
{
	const struct array a = {g, values};

	return hash(g, from_array, &a, hex);
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
