/* Configuration files of other programs. */
#include <string.h>

#include "base/file.h"
#include "trainer/config/config_impl.h"

enum ct_status ct_config_read_other(const char *path, ct_config_visit_fn visit, void *user)
{
	struct ct_problems p = {0};
	ct_yaml *doc = NULL;
	char *text = NULL;
	size_t len;

	CT_TRY(ct_file_read(path, CT_YAML_MAX_BYTES, &text, &len));
	enum ct_status st = ct__yaml_parse(text, len, path, &p, &doc);
	if (st == CT_OK)
		st = ct__problems_status(&p);
	const struct ct_yaml_node *root = st == CT_OK ? ct__yaml_root(doc) : NULL;
	if (root && root->kind != CT_YAML_MAP)
		st = CT_FAIL(CT_CONFIG, "%s: not a mapping of names to values", path);
	for (size_t i = 0; st == CT_OK && i < root->n; i++) {
		const struct ct_yaml_node *value = root->items[2 * i + 1];

		if (value->kind == CT_YAML_SCALAR)
			visit(user, root->items[2 * i]->text, value->text);
		else if (value->n > 0)
			visit(user, root->items[2 * i]->text, "...");
	}
	ct__yaml_destroy(doc);
	ct__problems_release(&p);
	ct_free(text);
	return st;
}
