/* Copies weights to a safetensors file: those that evaluation uses, under the names of the parameters. A checkpoint
 * holds other tensors, too; weights are those whose names begin with the prefix that ct_weights_open has found, and the
 * prefix is removed. No graph is needed, so models of other origin can be copied. Tensors are read one at a time, while
 * the file is written, in the order of the source. */
#include <string.h>

#include "base/failpoint.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/tools/export/export_impl.h"

struct exporting {
	struct ct_weights_file file;
	struct ct_tensor_desc *desc; /* names borrowed from the file */
	int *from;                   /* index of the tensor in the file */
	int n;
};

static bool is_weight(const char *name, const char *prefix)
{
	/* num_batches_tracked is an integer counter, which PyTorch modules initialize themselves. */
	return strncmp(name, prefix, strlen(prefix)) == 0 && !ct_ends_with(name, ".num_batches_tracked");
}

static enum ct_status list_tensors(struct exporting *e)
{
	size_t count = (size_t)ct_safetensors_count(e->file.tensors);

	CT_TRY_ALLOC(e->desc = CT_NEW_ARRAY(struct ct_tensor_desc, count + 1));
	CT_TRY_ALLOC(e->from = CT_NEW_ARRAY(int, count + 1));
	for (int i = 0; i < (int)count; i++) {
		struct ct_tensor_desc *d = &e->desc[e->n];

		ct_safetensors_at(e->file.tensors, i, d, NULL);
		if (!is_weight(d->name, e->file.prefix))
			continue;
		d->name += strlen(e->file.prefix);
		e->from[e->n++] = i;
	}
	return CT_OK;
}

static enum ct_status fill(void *user, int i, float *out)
{
	const struct exporting *e = user;

	ct_failpoint("export");
	return ct_safetensors_read(e->file.tensors, e->from[i], out, ct_tensor_n(&e->desc[i]));
}

static enum ct_status write_file(struct exporting *e, const char *description, const char *path, struct ct_str *report)
{
	const bool described = description[0] != '\0';
	const char *const metadata[] = {
		"format",    "pt", "producer", "ctrain " CTRAIN_VERSION, described ? CT_DESCRIPTION_KEY : NULL,
		description, NULL};
	char sha[65], *temp;
	uint64_t bytes;
	enum ct_status st;

	CT_TRY(list_tensors(e));
	CT_TRY(ct_file_check_new(path));
	CT_TRY_ALLOC(temp = ct_file_temp_name(path));
	st = ct_safetensors_write(temp, e->desc, e->n, fill, e, metadata, sha, &bytes);
	if (st == CT_OK)
		st = ct_file_publish(temp, path);
	ct_free(temp);
	CT_TRY(st);
	ct_str_addf(report, "%s: %d tensors%s from %s\n", path, e->n, e->file.averages ? " (EMA weights)" : "",
		    e->file.path);
	return CT_OK;
}

enum ct_status ct__export_safetensors(const char *weights, const struct ct_description *d, const char *path,
				      struct ct_str *report)
{
	struct exporting e = {0};
	struct ct_str description = {0};
	enum ct_status st = d ? ct_description_write(d, &description) : CT_OK;

	if (st == CT_OK && (st = ct_weights_open(weights, &e.file)) == CT_OK) {
		st = write_file(&e, ct_str_text(&description), path, report);
		ct_weights_close(&e.file);
	}
	ct_free(e.desc);
	ct_free(e.from);
	ct_str_release(&description);
	return st;
}
