/* Defaults that depend on the values of other keys. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "trainer/config/check_impl.h"

/* Sets a value that depends on other keys. Takes text. */
static void settle(struct ct_checker *k, const char *key, char **slot, char *text, enum ct_origin_kind kind,
		   const char *where)
{
	size_t i = ct__key_index(key);
	char *note = ct_strdup(where);

	ct_free(*slot);
	*slot = text;
	ct__config_note_default(k->c, i, kind, note);
}

static enum ct_status resolve_lr(struct ct_checker *k)
{
	const struct ct_config *c = k->c;
	char *note;

	if (ct__check_origin(k, "optim.lr")->layer != CT_LAYER_DEFAULT || (unsigned)c->optim.name >= CT_N_OPTIMIZERS)
		return CT_OK;
	const double lr = ct_optim_default_lr(c->optim.name);
	if (c->optim.lr == lr)
		return CT_OK;
	CT_TRY_ALLOC(note = ct_strfmt("default of %s", ct_config_choice(c, "optim.name")));
	k->c->optim.lr = lr;
	ct__config_note_default(k->c, ct__key_index("optim.lr"), CT_ORIGIN_DERIVED, note);
	return CT_OK;
}

enum ct_status ct__check_resolve(struct ct_checker *k)
{
	struct ct_config *c = k->c;
	const char *file = ct_path_name(k->path), *root = getenv("CTRAIN_DATA");
	const char *ending = strrchr(file, '.');
	const bool has_root = root && root[0];
	char *text;

	if (!c->run.name[0]) {
		CT_TRY_ALLOC(text = ct_strndup(file, ending && ending > file ? (size_t)(ending - file) : strlen(file)));
		settle(k, "run.name", &c->run.name, text, CT_ORIGIN_DEFAULT, CT_CONFIG_DEFAULT);
	}
	if (!c->run.dir[0]) {
		CT_TRY_ALLOC(text = ct_strfmt("runs/%s", c->run.name));
		settle(k, "run.dir", &c->run.dir, text, CT_ORIGIN_DEFAULT, CT_CONFIG_DEFAULT);
	}
	if (c->data.shape.n == 0 &&
	    (c->data.name == CT_CFG_DATA_SYNTHETIC || c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION))
		c->data.shape = (struct ct_int_list){.n = 3, .v = {1, 28, 28}};
	if (!c->data.dir[0] && ct__key_applies(ct__key_find("data.dir"), c)) {
		CT_TRY_ALLOC(text = ct_strfmt("%s/%s", has_root ? root : "datasets", ct_config_choice(c, "data.name")));
		settle(k, "data.dir", &c->data.dir, text, has_root ? CT_ORIGIN_DERIVED : CT_ORIGIN_DEFAULT,
		       has_root ? "environment CTRAIN_DATA" : CT_CONFIG_DEFAULT);
	}
	return resolve_lr(k);
}

enum ct_status ct__config_resolve(struct ct_config *c, const char *path)
{
	struct ct_checker k = {.c = c, .origins = ct__config_origins(c), .path = path};

	return ct__check_resolve(&k);
}
