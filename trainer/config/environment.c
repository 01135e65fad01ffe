/* Values from environment variables. */
#include <stdlib.h>

#include "trainer/config/config_impl.h"

/* torchrun reads its options also from these variables, and Kubeflow sets them in the pods of its jobs. */
static const struct {
	const char *variable, *key;
} torchrun[] = {
	{"PET_NNODES", "launch.nodes"},
	{"PET_NODE_RANK", "launch.node_rank"},
	{"PET_NPROC_PER_NODE", "launch.procs"},
	{"PET_MASTER_ADDR", "launch.master_addr"},
	{"PET_MASTER_PORT", "launch.master_port"},
	{"PET_MAX_RESTARTS", "launch.restarts"},
};

static enum ct_status store(struct ct_config *c, const char *variable, size_t key, struct ct_problems *p)
{
	const char *value = getenv(variable);
	struct ct_source s = {.layer = CT_LAYER_ENV};
	struct ct_str name = {0};
	enum ct_status st;

	if (!value || !value[0] || ct__config_origins(c)[key].layer > CT_LAYER_ENV)
		return CT_OK;
	ct_str_addf(&name, "environment %s", variable);
	s.name = ct_str_text(&name);
	st = ct__key_store_text(key, c, value, &s, p);
	ct_str_release(&name);
	return st;
}

/* A pod of Kubernetes is a node, and ctrain is its launcher. */
static enum ct_status apply_pod(struct ct_config *c, struct ct_problems *p)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(torchrun); i++)
		CT_TRY(store(c, torchrun[i].variable, ct__key_index(torchrun[i].key), p));
	/* The pods of an Indexed Job. If launch.nodes is 1, they are separate runs. */
	if (c->launch.nodes > 1 && !getenv("PET_NODE_RANK"))
		return store(c, "JOB_COMPLETION_INDEX", ct__key_index("launch.node_rank"), p);
	return CT_OK;
}

enum ct_status ct__config_apply_environment(struct ct_config *c, struct ct_problems *p)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		if (ct__key_at(i)->env)
			CT_TRY(store(c, ct__key_at(i)->env, i, p));
	}
	/* torchrun's own ranks inherit its variables. */
	return getenv("TORCHELASTIC_RUN_ID") ? CT_OK : apply_pod(c, p);
}
