/* Checks that involve several keys. If two different keys exclude each other, the one from the source with higher
 * precedence wins: `batch.global=256` on the command line replaces `per_rank: 64` in the file. A contradiction is an
 * error only if both keys come from the same source. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "trainer/config/config_impl.h"

struct checker {
	struct ct_config *c;
	struct ct_origin *origins;
	struct ct_problems *p;
	const char *path;
};

static const struct ct_origin *origin(const struct checker *k, const char *key)
{
	size_t i = ct__key_index(key);

	CT_ASSERT(i != SIZE_MAX);
	return &k->origins[i];
}

/* Returns true if the value is valid and can be compared with others. */
static bool fine(const struct checker *k, const char *key)
{
	return !origin(k, key)->bad;
}

/* Reports a problem with the location of the key's value, or of the start of the file if the key is not set. */
static void problem(struct checker *k, const char *key, const char *fmt, ...) CT_PRINTF(3, 4);
static void problem(struct checker *k, const char *key, const char *fmt, ...)
{
	const struct ct_origin *o = origin(k, key);
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	if (o->layer > CT_LAYER_DEFAULT)
		ct__problems_add(k->p, o->where, "%s", ct_str_text(&text));
	else
		ct__problems_add_whole(k->p, k->path, ct_str_text(&text));
	ct_str_release(&text);
}

static void check_required(struct checker *k)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *key = ct__key_at(i);
		struct ct_str b = {0};

		if (!(key->flags & CT_KEY_REQUIRED) || k->origins[i].layer > CT_LAYER_DEFAULT)
			continue;
		ct__key_describe(key, &b);
		problem(k, key->name, "%s is missing; choose one of %s", key->name, ct_str_text(&b));
		ct_str_release(&b);
	}
}

/* Resets a key and records the reason as its origin. Takes where. */
static enum ct_status fall_back(struct checker *k, size_t key, bool unset, char *where)
{
	enum ct_status st;

	CT_TRY_ALLOC(where);
	st = ct__key_reset(key, k->c, unset);
	ct__config_note(k->c, key, CT_LAYER_DEFAULT, where);
	return st;
}

/* Of two keys that exclude each other, the key from the source with higher precedence is used. */
static enum ct_status exclude(struct checker *k, const char *name_a, const char *name_b)
{
	size_t a = ct__key_index(name_a), b = ct__key_index(name_b), swap;

	if (k->origins[a].layer == k->origins[b].layer) {
		if (k->origins[a].layer > CT_LAYER_DEFAULT && !ct__key_is_unset(ct__key_at(a), k->c) &&
		    !ct__key_is_unset(ct__key_at(b), k->c))
			problem(k, name_b, "%s and %s (%s) exclude each other; set only one of them", name_b, name_a,
				k->origins[a].where);
		return CT_OK;
	}
	if (k->origins[a].layer < k->origins[b].layer) {
		swap = a;
		a = b;
		b = swap;
	}
	/* An explicit `auto` counts as a value, but an explicit 0 does not. */
	if (ct__key_is_unset(ct__key_at(a), k->c) && !(ct__key_at(a)->flags & CT_KEY_AUTO))
		return CT_OK;
	return fall_back(k, b, true, ct_strfmt("not set, because %s is", ct__key_at(a)->name));
}

/* Handles keys that do not apply to the chosen model, data set, optimizer or schedule. */
static enum ct_status check_only(struct checker *k)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *key = ct__key_at(i);
		struct ct_origin *o = &k->origins[i];
		size_t controller;
		const char *kinds, *chosen;

		if (!key->only || o->layer == CT_LAYER_DEFAULT || ct__key_applies(key, k->c))
			continue;
		kinds = ct__key_only(key, &controller);
		chosen = ct__config_choice(k->c, controller);
		if (k->origins[controller].bad || chosen[0] == '\0')
			continue;
		if (o->layer >= k->origins[controller].layer) {
			problem(k, key->name, "%s does not apply to %s %s, only to %s", key->name,
				ct__key_at(controller)->name, chosen, kinds);
			continue;
		}
		CT_TRY(fall_back(k, i, false,
				 ct_strfmt("default (the value at %s is for another %s)", o->where,
					   ct__key_at(controller)->name)));
	}
	return CT_OK;
}

static void check_batch_and_length(struct checker *k)
{
	const struct ct_config *c = k->c;

	if (c->batch.global == 0 && c->batch.per_rank == 0 && fine(k, "batch.global") && fine(k, "batch.per_rank"))
		problem(k, "batch.per_rank",
			"the batch size is not set; set batch.global (over all ranks) or batch.per_rank");
	if (c->batch.global > 0 && c->train.accumulate > c->batch.global)
		problem(k, "train.accumulate",
			"train.accumulate=%lld is larger than batch.global=%lld, so some batches would be empty",
			(long long)c->train.accumulate, (long long)c->batch.global);
	if (c->train.epochs == 0 && c->train.max_steps == 0 && fine(k, "train.epochs") && fine(k, "train.max_steps"))
		problem(k, "train.epochs", "the length of training is not set; set train.epochs or train.max_steps");
}

static void check_model(struct checker *k)
{
	const struct ct_config *c = k->c;
	const char *data = ct_config_choice(c, "data.name");
	bool regression = c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION, mse = c->model.loss == CT_CFG_LOSS_MSE;

	if (c->model.name == CT_MODEL_LAYERS && c->model.layers.n == 0 && fine(k, "model.layers"))
		problem(k, "model.name", "model.name=layers requires the list model.layers");
	if (regression && c->model.loss == CT_CFG_LOSS_CROSS_ENTROPY)
		problem(k, "model.loss",
			"model.loss=cross_entropy requires class labels, but data.name=%s has numeric targets; use mse",
			data);
	if (data[0] && !regression && mse)
		problem(k, "model.loss",
			"model.loss=mse requires numeric targets, but data.name=%s has class labels; use cross_entropy",
			data);
	if (c->model.label_smoothing > 0 && (regression || mse))
		problem(k, "model.label_smoothing",
			"model.label_smoothing requires class labels and model.loss=cross_entropy");
	if (c->train.target_top1 > 0 && regression)
		problem(k, "train.target_top1", "train.target_top1 requires class labels, but data.name=%s has none",
			data);
	if (c->train.target_top1 > 0 && strcmp(c->data.val, "none") == 0)
		problem(k, "train.target_top1", "train.target_top1 requires evaluations, but data.val is none");
}

static void check_pair(struct checker *k, const char *key, const struct ct_float_list *l)
{
	if (fine(k, key) && l->n == 2 && l->v[0] > l->v[1])
		problem(k, key, "%s: write the smaller number first", key);
}

static void check_val_size(struct checker *k)
{
	const struct ct_config *c = k->c;
	int64_t size = c->data.val_size;

	if (size > 0 && size < 8 && fine(k, "data.val.size"))
		problem(k, "data.val.size", "data.val.size=%lld is too small; the minimum is 8", (long long)size);
	if (size == 0)
		size = c->data.train_size.n > 0 ? c->data.train_size.v[c->data.train_size.n - 1].size
						: CT_DATA_DEFAULT_SIZE;
	if (c->data.val_resize > 0 && c->data.val_resize < size && fine(k, "data.val.size") &&
	    fine(k, "data.val.resize"))
		problem(k, "data.val.resize", "data.val.resize=%lld is smaller than the crop (data.val.size=%lld)",
			(long long)c->data.val_resize, (long long)size);
}

static void check_data(struct checker *k)
{
	const struct ct_config *c = k->c;
	int64_t elems = 1;

	if (c->data.shape.n != 0 && c->data.shape.n != 3)
		problem(k, "data.shape", "data.shape has %d entries instead of 3: [channels, height, width]",
			c->data.shape.n);
	for (int i = 0; i < c->data.shape.n; i++)
		elems = elems > INT32_MAX ? elems : elems * c->data.shape.v[i];
	if (elems > 1 << 24)
		problem(k, "data.shape", "data.shape: a sample may not have more than 16777216 numbers");
	if (fine(k, "data.mean") && fine(k, "data.std") && c->data.mean.n != c->data.std.n)
		problem(k, c->data.std.n > 0 ? "data.std" : "data.mean",
			"data.mean has %d entries and data.std has %d; both must have one entry per channel",
			c->data.mean.n, c->data.std.n);
	if (c->data.shuffle == CT_CFG_SHUFFLE_WINDOW && c->data.name != CT_CFG_DATA_SHARDS && fine(k, "data.name") &&
	    fine(k, "data.shuffle"))
		problem(k, "data.shuffle", "data.shuffle=window requires data.name=shards; use global for %s",
			ct_config_choice(c, "data.name"));
	check_pair(k, "data.augment.area", &c->data.augment.area);
	check_pair(k, "data.augment.ratio", &c->data.augment.ratio);
	check_val_size(k);
	if (c->data.augment.scale_min > c->data.augment.scale_max && fine(k, "data.augment.scale_min") &&
	    fine(k, "data.augment.scale_max"))
		problem(k, "data.augment.scale_min", "data.augment.scale_min is larger than scale_max");
}

/* What is decided from evaluations needs some. */
static void check_evaluations(struct checker *k)
{
	const struct ct_config *c = k->c;
	const struct {
		const char *key, *metric_key;
		bool on;
		enum ct_cfg_metric metric;
	} uses[] = {
		{"schedule.name", "schedule.metric", c->schedule.name == CT_LR_PLATEAU, c->schedule.metric},
		{"train.early_stop.patience", "train.early_stop.metric", c->train.early_stop.patience > 0,
		 c->train.early_stop.metric},
	};

	for (size_t i = 0; i < CT_ARRAY_LEN(uses); i++) {
		if (!uses[i].on)
			continue;
		if (strcmp(c->data.val, "none") == 0 || c->train.eval_every == 0)
			problem(k, uses[i].key, "%s requires evaluations during training; set %s", uses[i].key,
				c->train.eval_every == 0 ? "train.eval_every" : "data.val");
		if (uses[i].metric == CT_CFG_METRIC_TOP1 && c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION)
			problem(k, uses[i].metric_key, "%s=top1 requires class labels", uses[i].metric_key);
	}
}

static void check_learning(struct checker *k)
{
	const struct ct_config *c = k->c;
	const struct ct_float_list *m = &c->schedule.milestones;

	if (c->optim.nesterov && c->optim.momentum == 0 && fine(k, "optim.momentum") && c->optim.name == CT_SGD)
		problem(k, "optim.nesterov", "optim.nesterov requires optim.momentum above 0");
	if (c->schedule.name == CT_LR_MULTISTEP && m->n == 0 && fine(k, "schedule.milestones"))
		problem(k, "schedule.name",
			"schedule.name=multistep requires schedule.milestones, for example [30, 60, 80]");
	if (ct_lr_factors_check((const char *const *)c->optim.lr_factors.v, c->optim.lr_factors.n, NULL) < 0) {
		problem(k, "optim.lr_factors", "optim.lr_factors: %s; %s", ct_error_message(), ct_error_hint_text());
		ct_error_clear();
	}
	check_evaluations(k);
	for (int i = 1; i < m->n; i++) {
		if (m->v[i] <= m->v[i - 1]) {
			problem(k, "schedule.milestones", "schedule.milestones must increase");
			break;
		}
	}
}

/* Returns the number of items in a list such as "8,2", or -1 if an item is not an integer from lo to hi. */
static int count_numbers(const char *text, int64_t lo, int64_t hi)
{
	int n = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		char number[24];
		int64_t v;

		if (len >= sizeof(number))
			return -1;
		memcpy(number, text, len);
		number[len] = '\0';
		if (ct_parse_i64(number, &v) != CT_OK || v < lo || v > hi)
			return -1;
		n++;
		text += len;
		if (*text == ',' && *++text == '\0')
			return -1;
	}
	return n;
}

static bool init_fine(const char *url)
{
	const char *port = strrchr(url, ':');

	if (strncmp(url, "tcp://", 6) == 0)
		return port > url + 6 && count_numbers(port + 1, 1, 65535) == 1;
	if (strncmp(url, "file://", 7) == 0)
		return url[7] == '/' && url[8];
	return url[0] == '\0' || strcmp(url, "env://") == 0;
}

/* The rendezvous is given either by a URL, or by host and port. If a source sets both, one would be ignored. */
static void check_meeting(struct checker *k)
{
	static const char *const keys[] = {"launch.master_addr", "launch.master_port"};
	const struct ct_config *c = k->c;
	const bool given[] = {c->launch.master_addr[0] != '\0', c->launch.master_port != 0};
	const struct ct_origin *init = origin(k, "launch.init");

	if (!init_fine(c->launch.init))
		problem(k, "launch.init", "launch.init \"%s\" must be env://, tcp://host:port or file:///path",
			c->launch.init);
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		if (c->launch.init[0] && given[i] && fine(k, keys[i]) && origin(k, keys[i])->layer == init->layer)
			problem(k, keys[i],
				"%s and launch.init (%s) both set the address of the rendezvous; set only one of them",
				keys[i], init->where);
	}
}

static void check_ports(struct checker *k)
{
	const struct ct_config *c = k->c;
	const char *range = c->dist.port_range, *backend = c->dist.backend;
	const int64_t port = c->launch.master_port;
	int64_t first, last;

	if (!range[0])
		return;
	if (!ct_parse_range(range, 1, 65535, &first, &last))
		problem(k, "dist.port_range",
			"dist.port_range \"%s\" must be FIRST-LAST, two ports from 1 to 65535, for example \"30000-30100\"",
			range);
	else if (port != 0 && c->launch.nodes > 1 && (port < first || port > last) && fine(k, "launch.master_port"))
		problem(k, "launch.master_port",
			"launch.master_port=%lld is not in dist.port_range (%s); change one of them, or remove "
			"launch.master_port to use port %lld",
			(long long)port, range, (long long)first);
	if (c->launch.nodes > 1 && (strcmp(backend, "nccl") == 0 || strcmp(backend, "mpi") == 0))
		problem(k, "dist.port_range",
			"dist.port_range with dist.backend=%s: this library chooses its ports itself (docs/DISTRIBUTED.md, "
			"\"Ports and firewalls\"); remove dist.port_range, or use dist.backend=hier",
			backend);
}

/* One process does not use several devices, as nn.DataParallel does. */
static void check_devices(struct checker *k)
{
	const struct ct_config *c = k->c;
	const int n = count_numbers(c->launch.devices, 0, 1023);

	if (c->launch.devices[0] && strncmp(c->device, "cuda:", 5) == 0)
		problem(k, "launch.devices",
			"launch.devices=%s and device=%s both select GPUs; set device=cuda, or remove launch.devices",
			c->launch.devices, c->device);
	if (n < 0)
		problem(k, "launch.devices",
			"launch.devices \"%s\" must be a list of device numbers, for example \"0,2\"",
			c->launch.devices);
	if (n > c->launch.procs && c->launch.procs > 0 && !c->launch.procs_list[0] && fine(k, "launch.procs"))
		problem(k, "launch.devices",
			"launch.devices=%s lists %d GPUs, but launch.procs=%lld starts %lld process%s, and each process uses one "
			"GPU; set launch.procs=%d (docs/DISTRIBUTED.md: \"Coming from nn.DataParallel\")",
			c->launch.devices, n, (long long)c->launch.procs, (long long)c->launch.procs,
			c->launch.procs == 1 ? "" : "es", n);
}

static void check_pipeline(struct checker *k)
{
	const struct ct_config *c = k->c;

	if (c->launch.pipeline == 1 || !fine(k, "launch.pipeline"))
		return;
	if (strcmp(c->device, "auto") != 0 && strcmp(c->device, "cpu") != 0)
		problem(k, "launch.pipeline",
			"launch.pipeline=%lld with device=%s: the stages of a pipeline run only on CPUs; set device=cpu, or "
			"launch.pipeline=1",
			(long long)c->launch.pipeline, c->device);
	if (c->dist.bucket_mib == CT_CFG_AUTO && fine(k, "dist.bucket_mib"))
		problem(k, "dist.bucket_mib",
			"dist.bucket_mib=auto with launch.pipeline=%lld: the stages have different gradients, so no common size "
			"is measured; set a number, or remove dist.bucket_mib",
			(long long)c->launch.pipeline);
}

static void check_elastic(struct checker *k)
{
	const struct ct_config *c = k->c;
	const char *what = NULL;

	if (c->launch.min_nodes == 0 || !fine(k, "launch.nodes"))
		return;
	if (c->launch.restarts == 0)
		what = "launch.restarts, because the job forms again when a node is lost";
	else if (c->batch.global == 0)
		what = "batch.global, so that the batch does not depend on the number of nodes";
	else if (c->launch.pipeline > 1)
		what = "launch.pipeline=1";
	if (what)
		problem(k, "launch.nodes", "launch.nodes=%lld..%lld requires %s", (long long)c->launch.min_nodes,
			(long long)c->launch.nodes, what);
}

static void check_launch(struct checker *k)
{
	const struct ct_config *c = k->c;
	int n_list = count_numbers(c->launch.procs_list, 1, 1024);

	if (n_list < 0)
		problem(k, "launch.procs_list",
			"launch.procs_list \"%s\" must contain a number from 1 to 1024 for each node, for example \"8,2\"",
			c->launch.procs_list);
	else if (n_list > 0 && n_list != c->launch.nodes && fine(k, "launch.nodes"))
		problem(k, "launch.procs_list", "launch.procs_list \"%s\" is for %d nodes, but launch.nodes is %lld",
			c->launch.procs_list, n_list, (long long)c->launch.nodes);
	/* The variable often remains from a run on several nodes. */
	if (c->launch.nodes == 1 && origin(k, "launch.node_rank")->layer == CT_LAYER_ENV)
		k->c->launch.node_rank = 0;
	if (c->launch.node_rank >= c->launch.nodes && fine(k, "launch.node_rank") && fine(k, "launch.nodes"))
		problem(k, "launch.node_rank",
			"launch.node_rank=%lld is out of range; with launch.nodes=%lld it must be from 0 to %lld",
			(long long)c->launch.node_rank, (long long)c->launch.nodes, (long long)c->launch.nodes - 1);
	if (c->launch.nodes > 1 && !c->launch.master_addr[0] && !c->launch.init[0] && fine(k, "launch.init"))
		problem(k, "launch.nodes",
			"launch.nodes=%lld requires launch.master_addr (--master-addr), the address of node 0; under srun, "
			"remove launch.nodes",
			(long long)c->launch.nodes);
	if (c->launch.restarts > 0 && c->launch.nodes > 1 && c->launch.init[0] && fine(k, "launch.restarts") &&
	    fine(k, "launch.nodes"))
		problem(k, "launch.restarts",
			"launch.restarts=%lld with several nodes requires ctrain's own store; set launch.master_addr instead of launch.init",
			(long long)c->launch.restarts);
	check_elastic(k);
	check_meeting(k);
	check_ports(k);
	check_devices(k);
	check_pipeline(k);
}

/* Accepts the same strings as ct_log_configure, but does not configure anything. */
static void check_log_level(struct checker *k)
{
	const char *const *levels = ct__key_find("log.level")->choices;
	const char *s = k->c->log.level;

	while (*s) {
		size_t len = strcspn(s, ","), name = strcspn(s, ",=");
		size_t start = name < len ? name + 1 : 0;
		char level[16];

		snprintf(level, sizeof(level), "%.*s", (int)(len - start < 15 ? len - start : 15), s + start);
		if (len > 0 && ct_choice_find(levels, level) < 0) {
			const char *near = ct_suggest(level, levels, 5);

			problem(k, "log.level", "log.level: unknown level \"%s\"; did you mean \"%s\"?", level,
				near ? near : "info");
			return;
		}
		s += len + (s[len] == ',');
	}
}

static void check_names(struct checker *k)
{
	const struct ct_config *c = k->c;
	const char *const *words = ct__key_find("train.resume")->choices;
	const char *resume = c->train.resume, *near;

	if (strchr(c->run.name, '/') || strcmp(c->run.name, ".") == 0 || strcmp(c->run.name, "..") == 0)
		problem(k, "run.name", "run.name \"%s\" cannot be used as a directory name", c->run.name);
	if (ct_choice_find(words, resume) >= 0 || strchr(resume, '/') || ct_file_exists(resume))
		return;
	near = ct_suggest(resume, words, 3);
	problem(k, "train.resume", "train.resume \"%s\" is not auto, never, must or an existing directory%s%s%s",
		resume, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* Sets a value that depends on other keys. Takes text. */
static void settle(struct checker *k, const char *key, char **slot, char *text, const char *where)
{
	size_t i = ct__key_index(key);
	char *note = ct_strdup(where);

	ct_free(*slot);
	*slot = text;
	ct__config_note(k->c, i, CT_LAYER_DEFAULT, note);
}

/* PyTorch's default learning rate of its optimizers of the Adam family. */
static enum ct_status resolve_lr(struct checker *k)
{
	const struct ct_config *c = k->c;
	const bool adam = c->optim.name == CT_ADAM || c->optim.name == CT_ADAMW || c->optim.name == CT_LAMB;
	char *note;

	if (origin(k, "optim.lr")->layer != CT_LAYER_DEFAULT || !adam)
		return CT_OK;
	CT_TRY_ALLOC(note = ct_strfmt("default of %s", ct_config_choice(c, "optim.name")));
	k->c->optim.lr = 0.001;
	ct__config_note(k->c, ct__key_index("optim.lr"), CT_LAYER_DEFAULT, note);
	return CT_OK;
}

/* Sets defaults that depend on other values: run.name on the file name, run.dir on run.name, data.dir on data.name, and
 * optim.lr on optim.name. */
static enum ct_status resolve(struct checker *k)
{
	struct ct_config *c = k->c;
	const char *file = ct_path_name(k->path), *root = getenv("CTRAIN_DATA");
	const char *ending = strrchr(file, '.');
	char *text;

	if (!c->run.name[0]) {
		CT_TRY_ALLOC(text = ct_strndup(file, ending && ending > file ? (size_t)(ending - file) : strlen(file)));
		settle(k, "run.name", &c->run.name, text, "default");
	}
	if (!c->run.dir[0]) {
		CT_TRY_ALLOC(text = ct_strfmt("runs/%s", c->run.name));
		settle(k, "run.dir", &c->run.dir, text, "default");
	}
	if (c->data.shape.n == 0 &&
	    (c->data.name == CT_CFG_DATA_SYNTHETIC || c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION))
		c->data.shape = (struct ct_int_list){.n = 3, .v = {1, 28, 28}};
	if (!c->data.dir[0] && ct__key_applies(ct__key_find("data.dir"), c)) {
		CT_TRY_ALLOC(text = ct_strfmt("%s/%s", root && root[0] ? root : "datasets",
					      ct_config_choice(c, "data.name")));
		settle(k, "data.dir", &c->data.dir, text, root && root[0] ? "environment CTRAIN_DATA" : "default");
	}
	return resolve_lr(k);
}

enum ct_status ct__config_resolve(struct ct_config *c, const char *path)
{
	struct checker k = {.c = c, .origins = ct__config_origins(c), .path = path};

	return resolve(&k);
}

enum ct_status ct__config_check(struct ct_config *c, const char *path, struct ct_problems *p)
{
	struct checker k = {.c = c, .origins = ct__config_origins(c), .p = p, .path = path};

	check_required(&k);
	CT_TRY(exclude(&k, "data.val", "data.val_fraction"));
	CT_TRY(exclude(&k, "batch.global", "batch.per_rank"));
	CT_TRY(exclude(&k, "launch.procs", "launch.procs_list"));
	CT_TRY(exclude(&k, "schedule.warmup_epochs", "schedule.warmup_steps"));
	CT_TRY(check_only(&k));
	check_batch_and_length(&k);
	check_model(&k);
	check_data(&k);
	check_learning(&k);
	check_launch(&k);
	check_log_level(&k);
	CT_TRY(resolve(&k));
	check_names(&k);
	return CT_OK;
}
