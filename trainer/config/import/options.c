/* The options of launchers. */
#include <string.h>
#include <strings.h>

#include "trainer/config/import/import_impl.h"

/* ---- torchrun and torch.distributed.launch */

/* "2" or, for elastic jobs, "1:4" */
static void set_nodes(struct ct_import *im, const char *value)
{
	const char *colon = strchr(value, ':');

	if (colon && strncmp(value, colon + 1, (size_t)(colon - value)) != 0)
		ct__import_note(
			im,
			"--nnodes %s: this is the larger number; for a number that may change, set launch.nodes=MIN..MAX, launch.restarts and batch.global",
			value);
	ct__import_set(im, "launch.nodes", colon ? colon + 1 : value);
}

static void set_procs(struct ct_import *im, const char *value)
{
	const bool cpu = strcmp(value, "cpu") == 0;

	if (cpu || strcmp(value, "gpu") == 0)
		ct__import_set(im, "device", cpu ? "cpu" : "cuda");
	ct__import_set(im, "launch.procs", cpu || strcmp(value, "gpu") == 0 ? "auto" : value);
}

void ct__import_set_endpoint(struct ct_import *im, const char *value)
{
	const char *colon = strrchr(value, ':');
	char *host = ct_strndup(value, colon ? (size_t)(colon - value) : strlen(value));

	if (!host)
		im->status = CT_NOMEM;
	else
		ct__import_set(im, "launch.master_addr", host);
	if (colon)
		ct__import_set(im, "launch.master_port", colon + 1);
	ct_free(host);
}

static void set_restarts(struct ct_import *im, const char *value)
{
	if (strcmp(value, "0") != 0)
		ct__import_set(im, "launch.restarts", value);
}

static const struct ct_rule torchrun[] = {
	{"nnodes nnode", .apply = set_nodes},
	{"nproc-per-node", .apply = set_procs},
	{"node-rank", .set = "launch.node_rank"},
	{"master-addr", .set = "launch.master_addr"},
	{"master-port", .set = "launch.master_port"},
	{"rdzv-endpoint", .apply = ct__import_set_endpoint},
	{"rdzv-id", .set = "dist.run_id"},
	{"max-restarts", .apply = set_restarts},
	{"standalone", .flag = true},
	{"log-dir", .note = "each rank has a log in RUN/log"},
	{.names = "rdzv-backend rdzv-conf role monitor-interval start-method r redirects t tee local-addr logs-specs "
		  "log-line-prefix-template local-ranks-filter"},
	{"m module no-python use-env run-path", .flag = true},
};

const struct ct_rules ct__torchrun_rules = {torchrun, CT_ARRAY_LEN(torchrun)};

/* ---- accelerate: options of `accelerate launch`, and keys of its configuration file */

void ct__import_set_precision(struct ct_import *im, const char *value)
{
	static const char *const known[][2] = {{"no", "fp32"}, {"fp32", "fp32"}, {"fp16", "fp16"}, {"bf16", "bf16"}};

	for (size_t i = 0; i < CT_ARRAY_LEN(known); i++) {
		if (strcasecmp(value, known[i][0]) == 0) {
			ct__import_set(im, "precision", known[i][1]);
			return;
		}
	}
	ct__import_note(im, "precision %s: ctrain has fp32, bf16 and fp16", value);
}

static void set_gpus(struct ct_import *im, const char *value)
{
	if (strcmp(value, "all") != 0)
		ct__import_set(im, "launch.devices", value);
}

static void set_kind(struct ct_import *im, const char *value)
{
	if (strcmp(value, "NO") == 0)
		ct__import_set(im, "launch.procs", "1");
	else if (strcmp(value, "MULTI_CPU") == 0)
		ct__import_set(im, "device", "cpu");
	else if (strcmp(value, "MULTI_GPU") == 0)
		ct__import_set(im, "device", "cuda");
	else
		ct__import_note(
			im, "distributed_type %s: ctrain keeps the complete model on each device, as MULTI_GPU does",
			value);
}

static void set_config_file(struct ct_import *im, const char *value)
{
	ct__import_note(im, "--config_file: `ctrain import %s` translates this file", value);
}

static const struct ct_rule accelerate[] = {
	{"num-processes", .set = "?all"},
	{"num-machines", .apply = set_nodes},
	{"machine-rank", .set = "launch.node_rank"},
	{"main-process-ip", .set = "launch.master_addr"},
	{"main-process-port", .set = "launch.master_port"},
	{"mixed-precision", .apply = ct__import_set_precision},
	{"cpu use-cpu", .flag = true, .set = "device=cpu"},
	{"multi-gpu", .flag = true, .set = "device=cuda"},
	{"gpu-ids", .apply = set_gpus},
	{"num-cpu-threads-per-process", .set = "launch.threads"},
	{"gradient-accumulation-steps", .set = "train.accumulate"},
	{"max-restarts", .apply = set_restarts},
	{"distributed-type", .apply = set_kind},
	{"config-file", .apply = set_config_file},
	{"use-deepspeed use-fsdp tpu mps use-megatron-lm use-parallelism-config", .flag = true,
	 .note = "ctrain keeps the complete model on each device"},
	{"deepspeed-config fsdp-config megatron-lm-config parallelism-config",
	 .note = "ctrain keeps the complete model on each device"},
	{"dynamo-backend dynamo-config", .note = "ctrain plans and fuses its operations without such an option"},
	{.names =
		 "compute-environment downcast-bf16 main-training-function rdzv-backend rdzv-conf same-network tpu-env "
		 "tpu-use-cluster tpu-use-sudo role log-dir monitor-interval"},
	{"m module no-python debug quiet q enable-cpu-affinity", .flag = true},
};

const struct ct_rules ct__accelerate_rules = {accelerate, CT_ARRAY_LEN(accelerate)};

/* ---- all */

static const struct ct_rule *find(const struct ct_rules *rules, const struct ct_option_word *o)
{
	for (size_t i = 0; i < rules->n; i++) {
		if (ct_word_in(rules->all[i].names, o->name, o->len))
			return &rules->all[i];
	}
	return NULL;
}

static bool is_option(const char *word)
{
	return word[0] == '-' && word[1] != '\0' && !strchr("0123456789.", word[1]);
}

bool ct__import_next(struct ct_import *im, struct ct_option_word *out)
{
	if (im->at == im->words.n || !is_option(im->words.all[im->at]))
		return false;
	const char *word = im->words.all[im->at++], *name = word + strspn(word, "-");

	*out = (struct ct_option_word){.word = word, .name = name, .len = strcspn(name, "=")};
	if (name[out->len] == '=')
		out->value = name + out->len + 1;
	return true;
}

const char *ct__import_value(struct ct_import *im, const struct ct_option_word *o)
{
	if (o->value || im->at == im->words.n || is_option(im->words.all[im->at]))
		return o->value;
	return im->words.all[im->at++];
}

/* "KEY=VALUE" */
static void set_both(struct ct_import *im, const char *assignment)
{
	const char *eq = strchr(assignment, '=');
	char *key = ct_strndup(assignment, (size_t)(eq - assignment));

	if (key)
		ct__import_set(im, key, eq + 1);
	else
		im->status = CT_NOMEM;
	ct_free(key);
}

bool ct__import_apply(struct ct_import *im, const struct ct_rules *rules, const struct ct_option_word *o)
{
	const struct ct_rule *r = find(rules, o);
	const char *value = r && !r->flag ? ct__import_value(im, o) : "";

	if (!r)
		return false;
	if (!value) {
		if (im->status == CT_OK)
			im->status = CT_FAIL(CT_USAGE, "%s needs a value", o->word);
	} else if (r->apply) {
		r->apply(im, value);
	} else if (r->set && r->flag) {
		set_both(im, r->set);
	} else if (r->set) {
		ct__import_set(im, r->set, value);
	}
	if (r->note)
		ct__import_note(im, "%.*s: %s", (int)(o->name - o->word) + (int)o->len, o->word, r->note);
	return true;
}

void ct__import_unknown(struct ct_import *im, const struct ct_option_word *o)
{
	const char *value = o->value ? NULL : ct__import_value(im, o);

	ct_str_addf(&im->unknown, " %s%s%s", o->word, value ? " " : "", value ? value : "");
}

void ct__import_launcher(struct ct_import *im, const struct ct_rules *rules)
{
	struct ct_option_word o;

	while (ct__import_next(im, &o)) {
		if (!ct__import_apply(im, rules, &o))
			ct__import_unknown(im, &o);
	}
}
