/* `ctrain predict MODEL IMAGE...`: prints the most likely classes of image files. If an argument is a directory, all
 * images in it are classified. */
#define CT_LOG_COMPONENT "predict"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/predict_impl.h"
#include "trainer/commands/print_impl.h"

#define MAX_ROWS 32

struct output {
	const struct ct_predictor *p;
	char **paths;
	uint32_t n, n_bad;
	ct_json *images; /* NULL if the output is text */
};

static enum ct_status add_path(struct output *o, char *path)
{
	char **more;
	CT_TRY_ALLOC(path);
	if (!(more = ct_realloc(o->paths, o->n + 1, sizeof(*more)))) {
		ct_free(path);
		return CT_NOMEM;
	}
	o->paths = more;
	o->paths[o->n++] = path;
	return CT_OK;
}

static bool is_image(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

static enum ct_status add_argument(struct output *o, const char *arg)
{
	char **names = NULL;
	size_t n = 0;
	uint32_t before = o->n;
	struct stat sb;
	if (stat(arg, &sb) != 0 || !S_ISDIR(sb.st_mode)) /* a missing file is reported later as an unreadable image */
		return add_path(o, ct_strdup(arg));
	CT_TRY(ct_dir_list(arg, &names, &n));
	enum ct_status st = CT_OK;
	for (size_t i = 0; i < n && st == CT_OK; i++)
		if (is_image(names[i]))
			st = add_path(o, ct_path_join(arg, names[i]));
	ct_dir_list_free(names, n);
	if (st == CT_OK && o->n == before)
		return CT_FAIL(CT_DATA, "directory %s contains no .jpg, .jpeg or .png files", arg);
	return st;
}

static void class_name(const struct ct_predictor *p, int label, char *out, size_t size)
{
	if (label < p->classes.n)
		snprintf(out, size, "%s", p->classes.names[label]);
	else
		snprintf(out, size, "class %d", label);
}

static void tell_json(struct output *o, uint32_t i, const struct ct_prediction *r, const char *error)
{
	ct_json *image = ct_json_object(), *list = ct_json_array();
	ct_json_set_str(image, "path", o->paths[i]);
	for (int k = 0; r && k < r->n; k++) {
		ct_json *one = ct_json_object();
		ct_json_set_i64(one, "class", r->label[k]);
		if (r->label[k] < o->p->classes.n)
			ct_json_set_str(one, "name", o->p->classes.names[r->label[k]]);
		ct_json_set_f64(one, "p", r->probability[k]);
		ct_json_push(list, one);
	}
	if (error)
		ct_json_set_str(image, "error", error);
	ct_json_set(image, "top", list);
	ct_json_push(o->images, image);
}

static void tell(void *user, uint32_t i, const struct ct_prediction *r, const char *error)
{
	struct output *o = user;
	char name[256];
	o->n_bad += r == NULL;
	if (error)
		CT_WARN("%s", error);
	if (o->images) {
		tell_json(o, i, r, error);
		return;
	}
	if (!r)
		return;
	printf("%s\n", o->paths[i]);
	for (int k = 0; k < r->n; k++) {
		class_name(o->p, r->label[k], name, sizeof(name));
		printf("  %6.2f %%  %s\n", 100 * r->probability[k], name);
	}
}

static enum ct_status print(struct output *o)
{
	ct_json *j;
	if (!o->images)
		return CT_OK;
	j = ct_json_object();
	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "predict");
	ct_json_set_str(j, "model", ct_config_choice(o->p->cfg, "model.name"));
	ct_json_set_str(j, "checkpoint", o->p->weights);
	ct_json_set(j, "images", o->images);
	o->images = NULL;
	return ct__print_json(j, false);
}

static enum ct_status predict(const struct ct_cli *cli, struct output *o, struct ct_predictor *p)
{
	int64_t top;
	CT_TRY(ct_cli_number("--top", cli->top, 5, 1, 1000000, &top));
	for (int i = 1; i < cli->n_args; i++)
		CT_TRY(add_argument(o, cli->args[i]));
	CT_TRY(ct__predictor_open(cli->args[0], cli->checkpoint, cli->config, cli->sets, cli->n_sets,
				  o->n < MAX_ROWS ? (int)o->n : MAX_ROWS, p));
	CT_TRY(ct__predictor_run(p, o->paths, o->n, (int)top, tell, o));
	CT_TRY(print(o));
	if (o->n_bad == 0)
		return CT_OK;
	return CT_FAIL(CT_DATA, "%u of %u images could not be read (they are listed above)", o->n_bad, o->n);
}

enum ct_status ct_cmd_predict(const struct ct_cli *cli)
{
	struct ct_predictor p = {0};
	struct output o = {.p = &p, .images = cli->json ? ct_json_array() : NULL};
	const char *level = getenv("CTRAIN_LOG");
	/* main has already applied CTRAIN_LOG. */
	enum ct_status st = level && level[0] ? CT_OK : ct_log_configure("warn");
	if (st == CT_OK)
		st = predict(cli, &o, &p);
	ct__predictor_release(&p);
	for (uint32_t i = 0; i < o.n; i++)
		ct_free(o.paths[i]);
	ct_free(o.paths);
	ct_json_destroy(o.images);
	return st;
}
