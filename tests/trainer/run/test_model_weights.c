/* Loading pretrained weights by name, completely or in part, from files written by PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/safetensors.h"
#include "tests/nn/on_host.h"
#include "tests/trainer/ckpt_fixture.h"
#include "trainer/run/checkpoint/model_weights.h"

#define MAX_TENSORS 32

/* A file in the making: the tensors of the fixture's net as its step 3 has them, under `prefix`. */
struct file {
	struct ct_tensor_desc t[MAX_TENSORS];
	char names[MAX_TENSORS][128];
	float *data[MAX_TENSORS];
	int n;
};

static void add(struct file *f, const char *prefix, const char *name, int ndim, const int *dims)
{
	struct ct_tensor_desc *t = &f->t[f->n];

	assert_true(f->n < MAX_TENSORS);
	snprintf(f->names[f->n], sizeof(f->names[0]), "%s%s", prefix, name);
	*t = (struct ct_tensor_desc){.name = f->names[f->n], .ndim = ndim};
	for (int i = 0; i < ndim; i++)
		t->dims[i] = dims[i];
	f->data[f->n] = ct_calloc(ct_tensor_n(t), sizeof(float));
	assert_non_null(f->data[f->n]);
	t->data = f->data[f->n++];
}

static void fill_file(struct file *f, struct fixture *x, const char *prefix)
{
	size_t at = 0;

	fixture_set_step(x, 3);
	for (int i = 0; i < ct_graph_n_params(x->graph); i++) {
		const struct ct_param *p = ct_graph_param(x->graph, i);

		add(f, prefix, p->name, p->ndim, p->dims);
		assert_ok(export_now(x->net, on_host(ct_net_params(x->net)), i, f->data[f->n - 1]));
	}
	for (int i = 0; i < ct_graph_n_buffers(x->graph); i++) {
		const struct ct_param *p = ct_graph_buffer(x->graph, i);

		add(f, prefix, p->name, p->ndim, p->dims);
		memcpy(f->data[f->n - 1], on_host(ct_net_buffers(x->net)) + at, p->n * sizeof(float));
		at += p->n;
	}
}

static void close_file(struct file *f)
{
	for (int i = 0; i < f->n; i++)
		ct_free(f->data[i]);
}

static const char *save(const struct file *f, const char *name)
{
	const char *path = in_tmpdir(name);
	char sha[65];
	uint64_t bytes;

	remove(path);
	assert_ok(ct_safetensors_write(path, f->t, f->n, NULL, NULL, NULL, sha, &bytes));
	return path;
}

static struct ct_tensor_desc *named(struct file *f, const char *name)
{
	for (int i = 0; i < f->n; i++) {
		if (!strcmp(f->names[i], name))
			return &f->t[i];
	}
	fail_msg("no %s", name);
	return NULL;
}

/* Do parameters and running statistics have the values, or the averages, of this step? */
static bool holds_either(struct fixture *x, uint32_t step, bool averages)
{
	size_t params = ct_net_arena_elems(x->net) * sizeof(float),
	       buffers = ct_arena_elems(ct_net_buffers(x->net)) * sizeof(float);
	float *p = ct_calloc(params, 1), *b = ct_calloc(buffers, 1);

	memcpy(p, on_host(ct_net_params(x->net)), params);
	memcpy(b, on_host(ct_net_buffers(x->net)), buffers);
	fixture_set_step(x, step);
	if (averages)
		assert_ok(ct_ema_swap(x->ema));
	bool same = !memcmp(p, on_host(ct_net_params(x->net)), params) &&
		    !memcmp(b, on_host(ct_net_buffers(x->net)), buffers);
	ct_free(b);
	ct_free(p);
	return same;
}

static bool holds(struct fixture *x, uint32_t step)
{
	return holds_either(x, step, false);
}

static void test_whole(void **state)
{
	static const char *const prefixes[] = {"", "module.", "_orig_mod.", "module._orig_mod."};
	struct ct_weights_report r;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(prefixes); i++) {
		struct fixture x = {0};
		struct file f = {0};

		assert_ok(fixture_try_open(&x, "convnet", 10, 0.9f));
		fill_file(&f, &x, prefixes[i]);
		add(&f, prefixes[i], "layer1.1.num_batches_tracked", 0, NULL);
		const char *path = save(&f, "whole.safetensors");
		fixture_set_step(&x, 5);
		assert_ok(ct_model_weights_load(path, x.net, CT_WEIGHTS_STRICT, &r));
		assert_true(r.n == 14 && r.loaded == 14 && !r.missing && !r.misshaped && !r.extra);
		assert_true(holds(&x, 3));
		close_file(&f);
		fixture_close(&x);
	}
}

/* A checkpoint stands for the weights that it was evaluated with. */
static void test_checkpoint(void **state)
{
	struct ct_checkpoint_result saved;
	struct fixture x = {0};
	struct ct_weights_report r;
	char *path, *file;

	(void)state;
	assert_ok(fixture_try_open(&x, "convnet", 10, 0.9f));
	assert_ok(fixture_save(&x, in_tmpdir("run"), 3, 2, false));
	assert_ok(ct_checkpoint_find(in_tmpdir("run"), &path));
	for (int i = 0; i < 2; i++) {
		fixture_set_step(&x, 5);
		assert_ok(ct_model_weights_load(i ? in_tmpdir("run") : path, x.net, CT_WEIGHTS_STRICT, &r));
		assert_true(r.n == 14 && r.loaded == 14 && !r.missing && !r.misshaped && !r.extra);
		assert_true(holds_either(&x, 3, true));
	}
	/* The file alone is what it holds. */
	file = ct_path_join(path, "model.safetensors");
	fixture_set_step(&x, 5);
	assert_ok(ct_model_weights_load(file, x.net, CT_WEIGHTS_WHOLE, NULL));
	assert_true(holds(&x, 3));
	ct_free(file);
	ct_free(path);
	/* Without averages the parameters are taken. */
	struct ct_checkpoint_source src = {.net = x.net, .optim = x.optim, .state = &x.state};
	fixture_set_step(&x, 7);
	assert_ok(save_now(in_tmpdir("plain"), &src, 0, false, &saved));
	path = saved.path;
	fixture_set_step(&x, 5);
	assert_ok(ct_model_weights_load(path, x.net, CT_WEIGHTS_WHOLE, NULL));
	assert_true(holds(&x, 7));
	/* What was damaged since is not taken. */
	file = ct_path_join(path, "model.safetensors");
	char *data;
	size_t len;
	assert_ok(ct_file_read(file, 1 << 24, &data, &len));
	data[len - 1] ^= 1;
	assert_ok(ct_file_replace(file, data, len));
	assert_fails(ct_model_weights_load(path, x.net, CT_WEIGHTS_WHOLE, NULL), CT_DATA, "is damaged");
	ct_free(data);
	ct_free(file);
	ct_free(path);
	fixture_close(&x);
}

/* All kinds of differences are told at once, and nothing is changed. */
static void test_strict(void **state)
{
	struct fixture x = {0};
	struct file f = {0};

	(void)state;
	assert_ok(fixture_try_open(&x, "convnet", 10, 0.9f));
	fill_file(&f, &x, "");
	named(&f, "layer1.0.weight")->name = "layer9.0.weight";
	named(&f, "layer2.1.running_mean")->name = "line\nbreak";
	struct ct_tensor_desc *t = named(&f, "layer2.0.weight");
	t->dims[2] = 1;
	t->dims[3] = 25;
	t = named(&f, "layer1.1.bias");
	t->ndim = 2;
	t->dims[1] = 1;
	const char *path = save(&f, "other.safetensors");
	fixture_set_step(&x, 5);
	assert_fails(
		ct_model_weights_load(path, x.net, CT_WEIGHTS_STRICT, NULL), CT_DATA,
		"10 of the model's 14 tensors match. 2 have another shape or type: layer1.1.bias is "
		"[16,1], but the model's is [16], layer2.0.weight is [32,16,1,25], but the model's is [32,16,5,5]; 2 are "
		"missing: layer1.0.weight, layer2.1.running_mean; 2 are not in the model: ");
	assert_non_null(strstr(ct_error_message(), "line\\x0abreak"));
	assert_non_null(strstr(ct_error_message(), "layer9.0.weight"));
	assert_non_null(strstr(ct_error_hint_text(), "compare model.name"));
	assert_true(holds(&x, 5));
	close_file(&f);
	fixture_close(&x);
}

/* 1000 classes of ImageNet on 10 of one's own. */
static void test_new_head(void **state)
{
	struct fixture old = {0}, x = {0};
	struct file f = {0};
	struct ct_weights_report r;

	(void)state;
	assert_ok(fixture_try_open(&old, "convnet", 1000, 0.9f));
	fill_file(&f, &old, "");
	const char *path = save(&f, "thousand.safetensors");
	assert_ok(fixture_try_open(&x, "convnet", 10, 0.9f));
	fixture_set_step(&x, 5);
	assert_fails(ct_model_weights_load(path, x.net, CT_WEIGHTS_STRICT, NULL), CT_DATA,
		     "fc.bias is [1000], but the model's is [10]");
	assert_string_equal(ct_error_hint_text(),
			    "use model.strict=false to start with a new head (fc) and load the rest");
	assert_ok(ct_model_weights_load(path, x.net, CT_WEIGHTS_FITTING, &r));
	assert_true(r.n == 14 && r.loaded == 12 && r.misshaped == 2 && !r.missing && !r.extra);
	for (int i = 0; i < ct_graph_n_params(x.graph); i++) {
		const struct ct_param *p = ct_graph_param(x.graph, i);
		float *now = ct_calloc(p->n, sizeof(float)), *five = ct_calloc(p->n, sizeof(float));
		bool head = !strncmp(p->name, "fc.", 3);
		struct fixture fresh = {0};

		assert_ok(export_now(x.net, on_host(ct_net_params(x.net)), i, now));
		assert_ok(fixture_try_open(&fresh, "convnet", 10, 0.9f));
		fixture_set_step(&fresh, 5);
		assert_ok(export_now(fresh.net, on_host(ct_net_params(fresh.net)), i, five));
		assert_memory_equal(now, head ? five : named(&f, p->name)->data, p->n * sizeof(float));
		fixture_close(&fresh);
		ct_free(five);
		ct_free(now);
	}
	close_file(&f);
	fixture_close(&x);
	fixture_close(&old);
}

static void test_nothing_fits(void **state)
{
	struct fixture mlp = {0}, x = {0};
	struct file f = {0};

	(void)state;
	assert_ok(fixture_try_open(&x, "convnet", 10, 0.9f));
	fill_file(&f, &x, "encoder.");
	const char *path = save(&f, "encoder.safetensors");
	fixture_set_step(&x, 5);
	for (int strict = 0; strict < 2; strict++) {
		assert_fails(
			ct_model_weights_load(path, x.net, strict ? CT_WEIGHTS_STRICT : CT_WEIGHTS_FITTING, NULL),
			CT_DATA,
			"14 are missing: layer1.0.weight, layer1.0.bias, layer1.1.weight, layer1.1.bias, ...; 14 are "
			"not in the model: encoder.");
		assert_non_null(strstr(ct_error_hint_text(), "a model other than model.name"));
	}
	assert_true(holds(&x, 5));
	assert_fails(ct_model_weights_load(in_tmpdir("absent.safetensors"), x.net, CT_WEIGHTS_STRICT, NULL),
		     CT_NOT_FOUND, "absent");
	assert_ok(ct_file_replace(in_tmpdir("resnet18.pth"), "PK", 2));
	assert_fails(ct_model_weights_load(in_tmpdir("resnet18.pth"), x.net, CT_WEIGHTS_STRICT, NULL), CT_NOT_FOUND,
		     "nor a .safetensors file");
	assert_non_null(strstr(ct_error_hint_text(), "save_file"));
	close_file(&f);
	fixture_close(&x);
	fixture_close(&mlp);
}

/* Half precision, as many published weights come, and integers, which are none. */
static void test_types(void **state)
{
	static const char *const dtypes[] = {"F16", "BF16", "I64"};
	static const uint16_t half[] = {0x3c00, 0xc000, 0x0001}, brain[] = {0x3f80, 0xc000, 0x3d80};
	static const float want[2][3] = {{1, -2, 0x1p-24f}, {1, -2, 0.0625f}};
	struct ct_model_spec spec = {.name = "mlp", .input = {3, 1, 1}, .n_outputs = 2};
	struct ct_net_opts opts = {.batch = 1, .input = CT_INPUT_F32_NCHW};
	struct fixture x = {0};

	(void)state;
	assert_ok(ct_device_open("cpu", 0, &x.device));
	assert_ok(ct_engine_open("ref", x.device, 1, &x.engine));
	assert_ok(ct_model_build(&spec, &x.graph));
	assert_ok(ct_net_create(x.engine, x.graph, &opts, &x.net));
	for (size_t k = 0; k < CT_ARRAY_LEN(dtypes); k++) {
		size_t size = k == 2 ? 8 : 2;
		char file[512], *header = file + 8;
		float got[6];

		memset(file, 0, sizeof(file));
		int len = snprintf(header, 256,
				   "{\"fc1.weight\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[0,%zu]},"
				   "\"fc1.bias\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}}",
				   dtypes[k], 6 * size, dtypes[k], 6 * size, 8 * size);
		file[0] = (char)(len & 255);
		file[1] = (char)(len >> 8);
		for (int i = 0; i < 2 && k < 2; i++)
			memcpy(header + len + 6 * i, k ? brain : half, 6);
		assert_ok(ct_file_replace(in_tmpdir("half.safetensors"), file, 8 + (size_t)len + 8 * size));
		if (k == 2) {
			assert_fails(
				ct_model_weights_load(in_tmpdir("half.safetensors"), x.net, CT_WEIGHTS_FITTING, NULL),
				CT_DATA, "fc1.weight has the element type I64");
			continue;
		}
		assert_ok(ct_model_weights_load(in_tmpdir("half.safetensors"), x.net, CT_WEIGHTS_STRICT, NULL));
		assert_ok(export_now(x.net, on_host(ct_net_params(x.net)), 0, got));
		assert_memory_equal(got, want[k], sizeof(want[k]));
		assert_memory_equal(got + 3, want[k], sizeof(want[k]));
	}
	fixture_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),    cmocka_unit_test(test_checkpoint),   cmocka_unit_test(test_strict),
		cmocka_unit_test(test_new_head), cmocka_unit_test(test_nothing_fits), cmocka_unit_test(test_types),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
