/* `ctrain data show CONFIG [IMAGE ...]`: writes training images side by side to one image file. They are shown as the
 * model reads them, but without mixup and CutMix. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "trainer/commands/cli.h"
#include "trainer/plan/run_plan.h"

#define GAP 2 /* pixels between images */
#define MAX_IMAGES 4096
#define MAX_SIDE 32768 /* of the output image */

struct grid {
	int h, w, c, n, columns, rows;
	uint8_t *rgb; /* [output height, output width, 3] */
	int width, height;
};

static enum ct_status read_ids(const struct ct_cli *cli, uint32_t n_samples, uint32_t **out, int *n)
{
	int64_t count, id;

	CT_TRY(ct_cli_number("--count", cli->count, cli->n_args > 1 ? cli->n_args - 1 : 16, 1, MAX_IMAGES, &count));
	if (cli->n_args > 1 && cli->count)
		return CT_FAIL(CT_USAGE, "use either --count or indexes of images, not both");
	if (cli->n_args == 1 && count > n_samples)
		count = n_samples;
	CT_TRY_ALLOC(*out = CT_NEW_ARRAY(uint32_t, (size_t)count));
	for (int i = 0; i < (int)count; i++) {
		id = (int64_t)i * n_samples / count; /* of all classes, if they are sorted */
		enum ct_status st =
			cli->n_args > 1 ? ct_cli_number("image", cli->args[i + 1], 0, 0, (int64_t)n_samples - 1, &id)
					: CT_OK;
		if (st < 0) {
			ct_free(*out);
			return st;
		}
		(*out)[i] = (uint32_t)id;
	}
	*n = (int)count;
	return CT_OK;
}

static enum ct_status grid_create(struct grid *g)
{
	while (g->columns * g->columns < g->n)
		g->columns++;
	g->rows = (g->n + g->columns - 1) / g->columns;
	g->width = g->columns * (g->w + GAP) - GAP;
	g->height = g->rows * (g->h + GAP) - GAP;
	if (g->width > MAX_SIDE || g->height > MAX_SIDE)
		return CT_FAIL(
			CT_USAGE,
			"%d images of %d x %d pixels would need an output image of %d x %d pixels; the maximum is %d on each side",
			g->n, g->w, g->h, g->width, g->height, MAX_SIDE);
	g->rgb = ct_calloc((size_t)g->width * 3, (size_t)g->height);
	if (!g->rgb)
		return CT_NOMEM;
	memset(g->rgb, 255, (size_t)g->width * 3 * (size_t)g->height);
	return CT_OK;
}

/* x [h,w,c]. A grayscale image is written with three equal channels. */
static void grid_set(struct grid *g, int i, const uint8_t *x)
{
	int x0 = i % g->columns * (g->w + GAP), y0 = i / g->columns * (g->h + GAP);

	for (int y = 0; y < g->h; y++) {
		uint8_t *row = g->rgb + ((size_t)(y0 + y) * (size_t)g->width + (size_t)x0) * 3;

		for (int k = 0; k < g->w * 3; k++)
			row[k] = x[((size_t)y * (size_t)g->w + (size_t)(k / 3)) * (size_t)g->c +
				   (size_t)(g->c >= 3 ? k % 3 : 0)];
	}
}

static void print_image(const struct grid *g, const ct_dataset *d, int i, uint32_t id, int32_t label)
{
	char key[512];
	const char *name = ct_dataset_class_name(d, label);

	ct_dataset_key(d, id, key, sizeof(key));
	printf("row %d column %d  image %u  class %d%s%s%s  %s\n", i / g->columns, i % g->columns, id, label,
	       name ? " (" : "", name ? name : "", name ? ")" : "", key);
}

static enum ct_status fill(const struct ct_config *c, const struct ct_run_plan *p, const ct_dataset *d, uint32_t epoch,
			   const uint32_t *ids, struct grid *g)
{
	ct_transformer *t = NULL;
	uint8_t *x = ct_calloc((size_t)g->h * (size_t)g->w, (size_t)g->c);
	enum ct_status st = x ? ct_transformer_create(&p->transform, d, &t) : CT_NOMEM;

	if (st == CT_OK)
		ct_transformer_resize(t, g->h, g->w);
	for (int i = 0; i < g->n && st == CT_OK; i++) {
		int32_t label = 0;

		st = ct_transformer_run(t, (uint64_t)c->run.seed, epoch, ids[i], x, &label);
		if (st < 0) {
			char where[512];

			ct_dataset_describe(d, ids[i], where, sizeof(where));
			st = ct_error_wrap("%s", where);
		}
		if (st == CT_OK) {
			grid_set(g, i, x);
			print_image(g, d, i, ids[i], label);
		}
	}
	ct_transformer_destroy(t);
	ct_free(x);
	return st;
}

static enum ct_status show(const struct ct_cli *cli, const struct ct_config *c, const ct_dataset *d)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);
	struct ct_run_plan p;
	struct grid g = {0};
	uint32_t *ids = NULL;
	int64_t epoch;
	enum ct_status st;

	if (info->kind == CT_SAMPLE_F32)
		return CT_FAIL(CT_USAGE, "data set %s has no images to show", info->name);
	CT_TRY(ct_cli_number("--epoch", cli->epoch, 0, 0, UINT32_MAX - 1, &epoch));
	CT_TRY(ct_run_plan_make(c, 1, info, NULL, &p));
	CT_TRY(read_ids(cli, info->n, &ids, &g.n));
	struct ct_shape shape = ct_plan_input_at(&p, (uint32_t)epoch);
	g.h = shape.h;
	g.w = shape.w;
	g.c = shape.c;
	st = grid_create(&g);
	if (st == CT_OK)
		st = fill(c, &p, d, (uint32_t)epoch, ids, &g);
	const char *path = cli->out ? cli->out : "grid.png";
	if (st == CT_OK)
		st = ct_image_write(path, g.rgb, g.width, g.height);
	if (st == CT_OK)
		printf("%s: %d images of %d x %d as in epoch %lld with seed %lld\n", path, g.n, g.w, g.h,
		       (long long)epoch, (long long)c->run.seed);
	if (st == CT_OK && (p.mixup > 0 || p.cutmix > 0))
		printf("mixup and cutmix, which combine pairs of images, are not shown\n");
	ct_free(g.rgb);
	ct_free(ids);
	return st;
}

enum ct_status ct_cmd_data_show(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	ct_dataset *d = NULL;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_plan_open_data(c, true, NULL, &d);
	if (st == CT_OK)
		st = show(cli, c, d);
	ct_dataset_close(d);
	ct_config_destroy(c);
	return st;
}
