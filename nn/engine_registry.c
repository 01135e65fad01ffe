/* The list of engines. `auto` takes the first one that is available and supports the device. The CUDA engine is in a
 * module, which is opened when its entry is looked at, and not before. Whether an engine can compute a model is checked
 * node by node, before anything is allocated, so that the message names the layer and the hint names a precision or
 * another engine. Looking at entries may clear the error chain, so hints are collected before the error is reported. */
#include <stdio.h>
#include <string.h>

#include "base/device/cuda_module.h"
#include "base/mem.h"
#include "nn/engine_impl.h"

/* Engines in the order in which "auto" prefers them. */
static const struct entry {
	const char *name;
	const struct ct_engine_ops *ops; /* NULL: in a module, or not in this build */
	const char *symbol;              /* of the table in the module of CUDA; NULL: none */
	const char *why;                 /* not in this build */
} engines[] = {
#ifdef CT_WITH_ONEDNN
	{"onednn", &ct__engine_ops_onednn, NULL, ""},
#else
	{"onednn", NULL, NULL, "built without it (configure with -DCTRAIN_ONEDNN=ON)"},
#endif
	{"ref", &ct__engine_ops_ref, NULL, ""},
#ifdef CT_WITH_CUDA_ENGINE
	{"cuda", NULL, "ct_cuda_engine", ""},
#else
	{"cuda", NULL, NULL, "not in this build"},
#endif
};

/* The table of an engine that this machine can use, or NULL and the reason. */
static const struct ct_engine_ops *ops_of(const struct entry *e, char *why, size_t why_len)
{
	const struct ct_engine_ops *ops = e->ops;
	const void *table;

	snprintf(why, why_len, "%s", e->why);
	if (e->symbol && ct_cuda_module_open(e->symbol, &table) == CT_OK) {
		ops = ((const struct ct_engine_module *)table)->ops;
	} else if (e->symbol) {
		snprintf(why, why_len, "%s", ct_error_message());
		ct_error_clear();
	}
	return ops && ops->available(why, why_len) ? ops : NULL;
}

bool ct_engine_at(size_t i, const char **name, bool *available, char *why, size_t why_len)
{
	if (i >= CT_ARRAY_LEN(engines))
		return false;
	const struct ct_engine_ops *ops = ops_of(&engines[i], why, why_len);

	*name = engines[i].name;
	*available = ops != NULL;
	if (ops)
		snprintf(why, why_len, "%s", ops->version());
	return true;
}

static enum ct_status no_engine(const char *name, const ct_device *device, const char *why)
{
	/* Only the module of a GPU supports its device. */
	const enum ct_status st = ct_device_caps(device)->host_code ? CT_UNSUPPORTED : CT_DEVICE;
	char list[256] = "", unused[256];
	size_t len = 0;
	const char *other;
	bool available;

	for (size_t i = 0; ct_engine_at(i, &other, &available, unused, sizeof(unused)); i++) {
		if (available && len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", len ? ", " : "", other);
	}
	CT_FAIL(st, "engine \"%s\" is not available: %s", name, why);
	return ct_error_hint("available engines: %s", list);
}

/* Returns NULL if the engine supports the device, otherwise the reason why it does not. */
static const char *unsupported(const struct ct_engine_ops *ops, const ct_device *d, char *why, size_t why_len)
{
	bool can = ops->supports ? ops->supports(d) : strcmp(ct_device_kind(d), "cpu") == 0;

	if (can)
		return NULL;
	snprintf(why, why_len, "it does not support a %s device", ct_device_kind(d));
	return why;
}

static enum ct_status find_engine(const char *name, const ct_device *device, const struct ct_engine_ops **out)
{
	char why[256] = "there is no engine with this name";
	bool automatic = !strcmp(name, "auto");

	for (size_t i = 0; i < CT_ARRAY_LEN(engines); i++) {
		if (!automatic && strcmp(engines[i].name, name))
			continue;
		*out = ops_of(&engines[i], why, sizeof(why));
		if (*out && !unsupported(*out, device, why, sizeof(why)))
			return CT_OK;
		if (!automatic)
			break;
	}
	return no_engine(name, device, why);
}

enum ct_status ct_engine_open(const char *name, ct_device *device, int threads, ct_engine **out)
{
	const struct ct_engine_ops *ops;

	if (threads < 1)
		return CT_FAIL(CT_CONFIG, "an engine needs at least 1 thread, not %d", threads);
	CT_TRY(find_engine(name, device, &ops));
	return ct__engine_open_with(ops, device, threads, out);
}

static enum ct_status check_precision(const struct ct_engine_ops *ops, enum ct_precision p)
{
	char why[128] = "computes in fp32 only";

	CT_ASSERT(p != CT_PRECISION_AUTO);
	if (p == CT_PRECISION_FP32 || (ops->precision && ops->precision(p, why, sizeof(why))))
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "precision %s: the engine \"%s\" %s", ct_precision_name(p), ops->name, why);
	return ct_error_hint("use precision=fp32: every engine computes in it");
}

enum ct_status ct_engine_check_precision(const ct_engine *e, enum ct_precision p)
{
	return check_precision(e->ops, p);
}

/* Appends what can compute the operation: another precision, or other engines for this device. */
static void suggest(const struct ct_engine_ops *ops, const ct_device *d, enum ct_op op, enum ct_precision p,
		    struct ct_str *out)
{
	char why[256];
	int n = 0;

	if (ops->computes(op) & CT_IN(FP32) && p != CT_PRECISION_FP32) {
		ct_str_addf(out, "use precision=fp32, in which the engine \"%s\" computes it", ops->name);
		return;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(engines); i++) {
		const struct ct_engine_ops *other = ops_of(&engines[i], why, sizeof(why));

		if (other && !unsupported(other, d, why, sizeof(why)) && other->computes(op) & 1u << p)
			ct_str_addf(out, "%s%s", n++ ? " or " : "use train.engine=", other->name);
	}
	if (n == 0)
		ct_str_addf(out, "no engine for this device computes it: use a model without %s", ct_op_name(op));
}

static enum ct_status cannot_compute(const struct ct_engine_ops *ops, const ct_device *d, const struct ct_node *node,
				     enum ct_precision p)
{
	struct ct_str hint = {0};

	suggest(ops, d, node->op, p, &hint); /* clears the error chain, so it comes first */
	CT_FAIL(CT_UNSUPPORTED, "%s: the engine \"%s\" does not compute %s in %s", node->name, ops->name,
		ct_op_name(node->op), ct_precision_name(p));
	ct_error_hint("%s", ct_str_text(&hint));
	ct_str_release(&hint);
	return CT_UNSUPPORTED;
}

static enum ct_status check_graph(const struct ct_engine_ops *ops, const ct_device *d, const ct_graph *g,
				  enum ct_precision p)
{
	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);

		if (!(ops->computes(node->op) & 1u << p))
			return cannot_compute(ops, d, node, p);
		if (ops->check_node)
			CT_TRY(ops->check_node(g, id));
	}
	return CT_OK;
}

enum ct_status ct_engine_check_graph(const ct_engine *e, const ct_graph *g, enum ct_precision p)
{
	return check_graph(e->ops, e->device, g, p);
}

enum ct_status ct_engine_check_model(const char *name, ct_device *device, const ct_graph *g, enum ct_precision p)
{
	const struct ct_engine_ops *ops;

	CT_TRY(find_engine(name, device, &ops));
	CT_TRY(check_precision(ops, p));
	return check_graph(ops, device, g, p);
}
