/* Implements gloo_engine.h by calling the shared object that contains gloo. */
#include <stdio.h>

#include "base/mem.h"
#include "base/process/module.h"
#include "dist/comm/gloo/gloo_engine.h"

#include "dist/comm/comm_impl.h"

struct ct_gloo {
	const struct ct_gloo_module *module;
	struct ct_gloo_engine *engine;
};

static enum ct_status load(const struct ct_gloo_module **out)
{
	const void *module;

	CT_TRY(ct_module_open("ctrain_gloo.so", "ct_gloo_module", &module));
	*out = module;
	return CT_OK;
}

enum ct_status ct__gloo_available(char *note, size_t len)
{
	const struct ct_gloo_module *module;

	snprintf(note, len, "%s", "");
	return load(&module);
}

enum ct_status ct__gloo_open(const struct ct_gloo_opts *opts, ct_gloo **out)
{
	enum ct_status st;
	ct_gloo *g;

	*out = NULL;
	CT_TRY_ALLOC(g = CT_NEW(ct_gloo));
	CT_TRY_GOTO(load(&g->module), st, fail);
	CT_TRY_GOTO(g->module->open(opts, &g->engine), st, fail);
	*out = g;
	return CT_OK;

fail:
	ct_free(g);
	return st;
}

void ct__gloo_close(ct_gloo *g)
{
	if (!g)
		return;
	g->module->close(g->engine);
	ct_free(g);
}

enum ct_status ct__gloo_run(ct_gloo *g, const struct ct_gloo_op *op)
{
	return g->module->run(g->engine, op);
}

enum ct_status ct__gloo_start(ct_gloo *g, const struct ct_gloo_op *op, ct_gloo_message **out)
{
	return g->module->start(g->engine, op, out);
}

enum ct_status ct__gloo_finish(ct_gloo *g, ct_gloo_message *m)
{
	return g->module->finish(g->engine, m);
}
