/* Training scripts: their options, and the config that replaces them. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "trainer/config/config.h"
#include "trainer/config/import/import_impl.h"

/* -g 8 or, with the counts of all nodes, -g 8,2 */
static void set_gpus(struct ct_import *im, const char *value)
{
	ct__import_set(im, "?spawns", "yes");
	ct__import_set(im, "launch.procs", value);
}

static void set_model(struct ct_import *im, const char *value)
{
	struct ct_config_key k;
	struct ct_str known = {0};
	bool found = false;

	for (size_t i = 0; ct_config_key_at(i, &k); i++) {
		for (size_t m = 0; strcmp(k.name, "model.name") == 0 && k.choices[m]; m++) {
			found = found || strcmp(k.choices[m], value) == 0;
			ct_str_addf(&known, "%s%s", known.len > 0 ? ", " : "", k.choices[m]);
		}
	}
	if (!found && im->status == CT_OK) {
		im->status = CT_FAIL(CT_UNSUPPORTED, "ctrain has no model \"%.60s\"", value);
		ct_error_hint("the models are %s; model.layers describes others", ct_str_text(&known));
	}
	ct_str_release(&known);
	ct__import_set(im, "model.name", value);
}

static void set_arch(struct ct_import *im, const char *value)
{
	im->imagenet = true;
	set_model(im, value);
}

static void set_gpu(struct ct_import *im, const char *value)
{
	ct__import_set(im, "launch.procs", "1");
	ct__import_set(im, "launch.devices", value);
}

static void set_dummy(struct ct_import *im, const char *value)
{
	(void)value;
	im->imagenet = true;
	ct__import_set(im, "data.name", "synthetic");
	ct__import_set(im, "data.shape", "3,224,224");
	ct__import_set(im, "data.classes", "1000");
	ct__import_set(im, "data.n_train", "1281167");
	ct__import_set(im, "data.n_val", "50000");
}

/* StepLR(step_size=1, gamma) of the MNIST example */
static void set_gamma(struct ct_import *im, const char *value)
{
	ct__import_set(im, "schedule.name", "step");
	ct__import_set(im, "schedule.gamma", value);
	ct__import_set(im, "schedule.step_epochs", "1");
}

/* Options whose names mean something else in ctrain, or whose values depend on other options. The others are found by
 * their names in the config (ct_config_key_meant). */
static const struct ct_rule script[] = {
	{"n nodes", .set = "launch.nodes"},
	{"i id nr node-rank", .set = "launch.node_rank"},
	{"g gpus", .apply = set_gpus},
	{"world-size", .set = "?world"},
	{"rank", .set = "?rank"},
	{"dist-url init-method", .set = "?url"},
	{"dist-backend backend", .set = "dist.backend"},
	{"multiprocessing-distributed", .flag = true, .set = "?spawns=yes"},
	{"gpu", .apply = set_gpu},
	{"no-accel no-cuda cpu", .flag = true, .set = "device=cpu"},
	{"local-rank", .note = "ctrain numbers its ranks itself"},
	{"distributed ddp sync-bn pin-memory", .flag = true},
	{"a arch", .apply = set_arch},
	{"model", .apply = set_model},
	{"j workers num-workers", .set = "?workers"},
	{"b batch-size per-device-train-batch-size train-batch-size", .set = "?batch"},
	{"test-batch-size val-batch-size eval-batch-size", .set = "batch.eval"},
	{"opt optimizer", .set = "optim.name"},
	{"gamma", .apply = set_gamma},
	{"p print-freq log-interval log-every", .set = "log.every"},
	{"data data-path data-dir", .set = "data.dir"},
	{"num-train-epochs total-epochs", .set = "train.epochs"},
	{"save-every", .set = "checkpoint.every_epochs"},
	{"start-epoch", .note = "ctrain continues from the newest checkpoint of the run directory by itself"},
	{"resume", .set = "?resume"},
	{"pretrained", .flag = true,
	 .note = "model.weights=FILE.safetensors starts from weights with torchvision's names"},
	{"e evaluate", .flag = true, .set = "?eval=yes"},
	{"dummy", .flag = true, .apply = set_dummy},
	{"dry-run", .flag = true, .set = "train.max_steps=1"},
	{"save-model", .flag = true, .note = "ctrain saves checkpoints after each epoch (checkpoint.every_epochs)"},
	{"amp fp16 half", .flag = true, .set = "precision=fp16"},
	{"bf16", .flag = true, .set = "precision=bf16"},
	{"mixed-precision amp-dtype precision", .apply = ct__import_set_precision},
};

const struct ct_rules ct__script_rules = {script, CT_ARRAY_LEN(script)};

/* Scripts of the tutorials. */
static const struct {
	const char *part, *config; /* a part of the file name */
	const char *arguments;
} scripts[] = {
	{"mnist", "configs/mnist_ddp.yaml", ""},
	{"cifar", "configs/resnet18_cifar10.yaml", ""},
	{"imagenet", "configs/imagenet_folders.yaml", "data.dir"},
	{"multigpu", "configs/toy_ddp.yaml", "train.epochs checkpoint.every_epochs"},
	{"single_gpu", "configs/toy_ddp.yaml", "train.epochs checkpoint.every_epochs"},
	{"toy", "configs/toy_ddp.yaml", ""},
	{"ddp_sample", "configs/toy_ddp.yaml", ""},
	{"elastic_ddp", "configs/toy_ddp.yaml", ""},
};

static bool contains(const char *name, const char *part)
{
	for (; *name; name++) {
		if (strncasecmp(name, part, strlen(part)) == 0)
			return true;
	}
	return false;
}

/* Returns the config for a script of the tutorials, or NULL. name may be NULL. */
static const char *config_of(const char *name)
{
	for (size_t i = 0; name && i < CT_ARRAY_LEN(scripts); i++) {
		if (contains(name, scripts[i].part) && !contains(name, "imagenet"))
			return scripts[i].config;
	}
	return NULL;
}

/* An option that has the name of a key or of its last part, or a name that other programs use for a key. */
static bool set_by_name(struct ct_import *im, const struct ct_option_word *o)
{
	char name[64];
	struct ct_key_hint hint;

	snprintf(name, sizeof(name), "%.*s", (int)o->len, o->name);
	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : *p;
	if (!ct_config_key_meant(name, NULL).key)
		return false;
	hint = ct_config_key_meant(name, ct__import_value(im, o));
	ct__import_set(im, hint.key, hint.value ? hint.value : "true");
	return true;
}

/* The next argument without a dash. */
static void take_argument(struct ct_import *im)
{
	const char *value = im->words.all[im->at++], *names = im->arguments;
	const size_t len = names ? strcspn(names, " ") : 0;
	char key[64];

	if (len == 0) {
		ct_str_addf(&im->unknown, " %s", value);
		return;
	}
	snprintf(key, sizeof(key), "%.*s", (int)len, names);
	im->arguments = names + len + strspn(names + len, " ");
	ct__import_set(im, key, value);
}

void ct__import_script(struct ct_import *im)
{
	struct ct_option_word o;

	im->arguments = im->script && strcmp(im->script, "main.py") == 0 ? "data.dir" : "";
	for (size_t i = 0; im->script && i < CT_ARRAY_LEN(scripts); i++) {
		if (contains(im->script, scripts[i].part))
			im->arguments = scripts[i].arguments;
	}
	im->imagenet = im->script && (strcmp(im->script, "main.py") == 0 || contains(im->script, "imagenet"));
	while (im->at < im->words.n) {
		if (!ct__import_next(im, &o))
			take_argument(im);
		else if (!ct__import_apply(im, &ct__script_rules, &o) &&
			 !ct__import_apply(im, &ct__torchrun_rules, &o) && !set_by_name(im, &o))
			ct__import_unknown(im, &o);
	}
	/* The MNIST example of PyTorch is also called main.py. Scripts with a config of their own may have the same
	 * options. */
	im->mnist = im->imagenet && ct__import_get(im, "schedule.gamma");
	im->imagenet = im->imagenet && !im->mnist && !config_of(im->script);
}

const char *ct__import_config(struct ct_import *im)
{
	const char *config = config_of(im->script);

	if (config)
		return config;
	if (im->imagenet)
		return "configs/imagenet_folders.yaml";
	if (im->mnist)
		return "configs/mnist_ddp.yaml";
	ct__import_note(im, "replace CONFIG.yaml by a config with the model and the data of %s; configs/ has examples",
			im->script ? im->script : "your script");
	return "CONFIG.yaml";
}
