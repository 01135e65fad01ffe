/* `ctrain ckpt export PATH --out FILE`: writes the weights that evaluation uses to a .safetensors file. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/checkpoint/model_weights.h"
#include "trainer/commands/cli.h"

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

	return ct_safetensors_read(e->file.tensors, e->from[i], out, ct_tensor_n(&e->desc[i]));
}

static enum ct_status write_file(struct exporting *e, const char *path)
{
	static const char *const metadata[] = {"format", "pt", "producer", "ctrain " CTRAIN_VERSION, NULL};
	char sha[65];
	uint64_t bytes;

	CT_TRY(list_tensors(e));
	CT_TRY(ct_safetensors_write(path, e->desc, e->n, fill, e, metadata, sha, &bytes));
	printf("%s: %d tensors%s from %s\n", path, e->n, e->file.averages ? " (EMA weights)" : "", e->file.path);
	return CT_OK;
}

/* The suffix determines the format; only .safetensors is supported. */
static enum ct_status check_suffix(const char *path)
{
	if (ct_ends_with(path, ".safetensors"))
		return CT_OK;
	(void)CT_FAIL(CT_USAGE, "--out %s: ckpt export writes .safetensors files only", path);
	if (ct_ends_with(path, ".pth") || ct_ends_with(path, ".pt") || ct_ends_with(path, ".bin"))
		ct_error_hint(
			"export to FILE.safetensors, which PyTorch can read with safetensors.torch.load_file. To convert it to .pth: "
			"torch.save(load_file(\"FILE.safetensors\"), \"FILE.pth\")");
	else if (ct_ends_with(path, ".onnx"))
		ct_error_hint(
			"export to FILE.safetensors, load it into the model in PyTorch (docs/FORMATS.md) and call "
			"torch.onnx.export");
	else
		ct_error_hint("name the file FILE.safetensors");
	return CT_USAGE;
}

enum ct_status ct_cmd_ckpt_export(const struct ct_cli *cli)
{
	struct exporting e = {0};
	enum ct_status st;

	if (!cli->out)
		return CT_FAIL(CT_USAGE, "ckpt export requires --out FILE.safetensors");
	CT_TRY(check_suffix(cli->out));
	CT_TRY(ct_weights_open(cli->args[0], &e.file));
	st = write_file(&e, cli->out);
	ct_free(e.desc);
	ct_free(e.from);
	ct_weights_close(&e.file);
	return st;
}
