/* `ctrain data show CONFIG [IMAGE ...]`: writes training images side by side to one image file, as the model reads
 * them. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/dataset/image_grid.h"
#include "trainer/tools/dataset/sample_choice.h"

enum { MAX_IMAGES = 4096, MAX_COLUMNS = 12, SIDE = 160, BESIDE = 4 };
/* MAX_COLUMNS: of images, or half as many pairs. SIDE: about the width of small images after enlarging them. BESIDE:
 * pixels between the images of a pair. */

struct show {
	const struct ct_cli *cli;
	const struct ct_show_options *o;
	const struct ct_config *c;
	const ct_dataset *d;
	const char *path;
	struct ct_run_plan plan;
	struct ct_shape shape; /* of the images that the model reads */
	int scale;             /* each of their pixels becomes scale * scale pixels */
	uint32_t epoch;
	struct ct__grid grid;
};

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static const char *class_text(const struct show *s, int label, char buf[32])
{
	const char *name = ct_dataset_class_name(s->d, label);

	snprintf(buf, 32, "%d", label);
	return name ? name : buf;
}

static int longest_name(const struct show *s)
{
	int longest = 0;
	char buf[32];

	for (int k = 0; k < ct_dataset_info(s->d)->n_classes; k++) {
		const int n = ct_text_length(class_text(s, k, buf));

		longest = n > longest ? n : longest;
	}
	return longest;
}

/* Draws the image x that the model reads. */
static void draw(struct show *s, int i, int left, const uint8_t *x)
{
	const struct ct_shape *p = &s->shape;

	ct_grid_draw(&s->grid, i, left, 0, p->w * s->scale, p->h * s->scale, x, p->h, p->w, p->c);
}

/* Draws an image as large as fits into the left half of cell i. */
static void draw_fitting(struct show *s, int i, const uint8_t *x, int h, int w, int c)
{
	const int box_w = s->shape.w * s->scale, box_h = s->shape.h * s->scale;
	const bool wide = (int64_t)w * box_h > (int64_t)h * box_w;
	const int out_w = wide ? box_w : w * box_h / h, out_h = wide ? h * box_w / w : box_h;
	const int fit_w = out_w > 0 ? out_w : 1, fit_h = out_h > 0 ? out_h : 1;

	ct_grid_draw(&s->grid, i, (box_w - fit_w) / 2, (box_h - fit_h) / 2, fit_w, fit_h, x, h, w, c);
}

/* Reduces the complete compressed image of sample `id` to the size of a cell, and draws it. */
static enum ct_status draw_decoded(struct show *s, int i, uint32_t id)
{
	const int box_w = s->shape.w * s->scale, box_h = s->shape.h * s->scale;
	struct ct_transform how = {.crop = CT_CROP_RANDOM,
				   .h = box_h,
				   .w = box_w,
				   .area_min = 1,
				   .area_max = 1,
				   .image = s->plan.transform.image};
	struct ct_image_header header;
	ct_transformer *t = NULL;
	uint8_t *x = NULL;
	enum ct_status st;

	CT_TRY(ct_transformer_create(&how, s->d, &t));
	st = ct_transformer_verify(t, id, &header);
	ct_transformer_destroy(t);
	CT_TRY(st);
	const bool wide = (int64_t)header.w * box_h > (int64_t)header.h * box_w;
	how.w = wide ? box_w : (int)((int64_t)header.w * box_h / header.h);
	how.h = wide ? (int)((int64_t)header.h * box_w / header.w) : box_h;
	how.w = how.w > 0 ? how.w : 1;
	how.h = how.h > 0 ? how.h : 1;
	how.ratio_min = how.ratio_max = (float)header.w / (float)header.h; /* the complete image */
	CT_TRY_ALLOC(x = CT_NEW_ARRAY(uint8_t, (size_t)how.h *(size_t)how.w * 3));
	t = NULL;
	st = ct_transformer_create(&how, s->d, &t);
	if (st == CT_OK)
		st = ct_transformer_run(t, 0, 0, id, x, NULL);
	if (st == CT_OK)
		draw_fitting(s, i, x, how.h, how.w, 3);
	ct_transformer_destroy(t);
	ct_free(x);
	return st;
}

/* Draws sample `id` as it is stored. */
static enum ct_status draw_original(struct show *s, int i, uint32_t id)
{
	const struct ct_dataset_info *info = ct_dataset_info(s->d);
	enum ct_status st;
	uint8_t *x;

	if (info->kind == CT_SAMPLE_ENCODED)
		return draw_decoded(s, i, id);
	CT_TRY_ALLOC(x = CT_NEW_ARRAY(uint8_t, info->sample_bytes));
	st = ct_dataset_read(s->d, id, x, NULL, NULL);
	if (st == CT_OK)
		draw_fitting(s, i, x, info->h, info->w, info->c);
	ct_free(x);
	return st;
}

static void print_image(const struct show *s, int i, uint32_t id, int32_t label)
{
	char key[512];
	const char *name = ct_dataset_class_name(s->d, label);

	ct_dataset_key(s->d, id, key, sizeof(key));
	printf("row %d column %d  image %u  class %d%s%s%s  %s\n", i / s->grid.columns, i % s->grid.columns, id, label,
	       name ? " (" : "", name ? name : "", name ? ")" : "", key);
}

/* An unreadable image that was chosen at random does not prevent the others from being shown. */
static void show_unreadable(struct show *s, int i)
{
	ct_grid_caption(&s->grid, i, 0, "unreadable");
	printf("row %d column %d  unreadable: %s\n", i / s->grid.columns, i % s->grid.columns, ct_error_message());
	ct_error_clear();
}

static enum ct_status show_sample(struct show *s, ct_transformer *t, int i, uint32_t id, uint8_t *x)
{
	char where[512], buf[32];
	int32_t label = 0;
	enum ct_status st = ct_transformer_run(t, (uint64_t)s->c->run.seed, s->epoch, id, x, &label);

	if (st == CT_OK && s->o->before_after)
		st = draw_original(s, i, id);
	if (st < 0) {
		ct_dataset_describe(s->d, id, where, sizeof(where));
		return ct_error_wrap("%s", where);
	}
	draw(s, i, s->o->before_after ? s->shape.w * s->scale + BESIDE : 0, x);
	if (s->grid.lines > 0)
		ct_grid_caption(&s->grid, i, 0, class_text(s, label, buf));
	print_image(s, i, id, label);
	return CT_OK;
}

/* One image alone is written with the pixels that the model reads, and nothing else. */
static enum ct_status write_alone(const struct show *s, const uint8_t *x)
{
	const struct ct_shape *p = &s->shape;
	enum ct_status st;
	uint8_t *rgb;

	CT_TRY_ALLOC(rgb = CT_NEW_ARRAY(uint8_t, (size_t)p->h *(size_t)p->w * 3));
	for (int k = 0; k < p->h * p->w * 3; k++)
		rgb[k] = x[(size_t)(k / 3) * (size_t)p->c + (size_t)(p->c >= 3 ? k % 3 : 0)];
	st = ct_image_write(s->path, rgb, p->w, p->h);
	ct_free(rgb);
	return st;
}

static enum ct_status show_samples(struct show *s, const struct ct__choice *choice)
{
	const bool alone = choice->n == 1 && !s->o->before_after;
	ct_transformer *t = NULL;
	enum ct_status st = CT_OK;
	uint8_t *x;

	s->grid.n = choice->n;
	s->grid.columns = choice->columns;
	s->grid.lines = ct_dataset_info(s->d)->n_classes > 0;
	if (s->o->before_after) {
		s->grid.cell_w = 2 * s->shape.w * s->scale + BESIDE;
		s->grid.title = "left: as stored   right: as the model reads it";
	}
	CT_TRY(ct_grid_create(&s->grid, longest_name(s)));
	CT_TRY_ALLOC(x = CT_NEW_ARRAY(uint8_t, (size_t)s->shape.h *(size_t)s->shape.w *(size_t)s->shape.c));
	st = ct_transformer_create(&s->plan.transform, s->d, &t);
	if (st == CT_OK)
		ct_transformer_resize(t, s->shape.h, s->shape.w);
	for (int i = 0; i < choice->n && st == CT_OK; i++) {
		if (choice->ids[i] != CT_NO_SAMPLE)
			st = show_sample(s, t, i, choice->ids[i], x);
		if (st == CT_DATA && s->cli->n_args == 1 && !alone) {
			show_unreadable(s, i);
			st = CT_OK;
		}
	}
	if (st == CT_OK)
		st = alone ? write_alone(s, x)
			   : ct_image_write(s->path, s->grid.image.pixels, s->grid.image.w, s->grid.image.h);
	ct_transformer_destroy(t);
	ct_free(x);
	return st;
}

static enum ct_status read_ids(const struct show *s, struct ct__choice *out)
{
	const int n = s->cli->n_args - 1;
	enum ct_status st = CT_OK;

	out->n = n;
	CT_TRY_ALLOC(out->ids = CT_NEW_ARRAY(uint32_t, (size_t)n));
	for (int i = 0; i < n && st == CT_OK; i++) {
		int64_t id = 0;

		st = ct_cli_number("image", s->cli->args[i + 1], 0, 0, (int64_t)ct_dataset_info(s->d)->n - 1, &id);
		out->ids[i] = (uint32_t)id;
	}
	for (out->columns = 1; out->columns * out->columns < n;)
		out->columns++;
	return st;
}

static enum ct_status choose(const struct show *s, struct ct__choice *out)
{
	const uint32_t n = ct_dataset_info(s->d)->n;
	int64_t count, seed;

	CT_TRY(ct_cli_number("--count", s->o->count, 0, 1, MAX_IMAGES, &count));
	CT_TRY(ct_cli_number("--seed", s->o->seed, s->c->run.seed, 0, INT64_MAX, &seed));
	if (s->cli->n_args > 1 && (s->o->count || s->o->seed))
		return CT_FAIL(CT_USAGE, "use either %s or indexes of images, not both",
			       s->o->count ? "--count" : "--seed");
	if (s->cli->n_args > 1)
		return read_ids(s, out);
	return ct_choose_samples(s->d, (uint64_t)seed, (int)(count > n ? n : count),
				 s->o->before_after ? MAX_COLUMNS / 2 : MAX_COLUMNS, out);
}

/* Shows the labels of row i of a batch in two lines: "cat 73 %", "dog 27 %". */
static void show_mixed(struct show *s, const struct ct_loader_batch *b, uint32_t i)
{
	const float share = b->mix ? b->mix[i] : 1;
	const int32_t labels[2] = {b->labels[i], b->labels_b ? b->labels_b[i] : b->labels[i]};
	char text[2][256], buf[32];

	for (int k = 0; k < 2; k++)
		snprintf(text[k], sizeof(text[k]), "%.200s %.1f %%", class_text(s, labels[k], buf),
			 100 * (k ? 1 - share : share));
	ct_grid_caption(&s->grid, (int)i, 0, share < 1 ? text[0] : class_text(s, labels[0], buf));
	if (share < 1)
		ct_grid_caption(&s->grid, (int)i, 1, text[1]);
	printf("row %u column %u  image %u  %s%s%s\n", i / (uint32_t)s->grid.columns, i % (uint32_t)s->grid.columns,
	       b->samples[i], share < 1 ? text[0] : "not mixed", share < 1 ? ", " : "", share < 1 ? text[1] : "");
}

static enum ct_status show_batch(struct show *s, const struct ct_loader_batch *b, int64_t count)
{
	const size_t bytes = (size_t)b->h * (size_t)b->w * (size_t)s->shape.c;

	s->grid.n = (int)(b->n < count ? b->n : count);
	s->grid.columns = min_int(s->grid.n, MAX_COLUMNS * 2 / 3);
	s->grid.lines = 2;
	s->grid.title = "the first images of a batch, with their labels";
	CT_TRY(ct_grid_create(&s->grid, longest_name(s) + (int)strlen(" 99.9 %")));
	for (int i = 0; i < s->grid.n; i++) {
		draw(s, i, 0, (const uint8_t *)b->x + (size_t)i * bytes);
		show_mixed(s, b, (uint32_t)i);
	}
	return ct_image_write(s->path, s->grid.image.pixels, s->grid.image.w, s->grid.image.h);
}

/* --mixup: images of the first batch of the epoch, from the loader that training uses. */
static enum ct_status show_mixup(struct show *s)
{
	struct ct_loader_batch batch = {0};
	struct ct_loader_opts opts;
	ct_loader *loader = NULL;
	enum ct_status st;
	int64_t count;

	CT_TRY(ct_cli_number("--count", s->o->count, 32, 1, MAX_IMAGES, &count));
	if (s->plan.mixup <= 0 && s->plan.cutmix <= 0) {
		CT_FAIL(CT_USAGE, "the config uses neither data.augment.mixup nor data.augment.cutmix");
		return ct_error_hint("set them in the config, or add data.augment.mixup=0.2");
	}
	if (s->cli->n_args > 1 || s->o->seed || s->o->before_after) {
		CT_FAIL(CT_USAGE,
			"--mixup shows a batch, and cannot be used with indexes of images, --seed or --before-after");
		return ct_error_hint("run.seed=N selects another batch, and --epoch N another epoch");
	}
	ct_plan_loader_opts(s->c, &s->plan, ct_dataset_info(s->d), true, 0, 1, &opts);
	opts.n_threads = 0;
	CT_TRY(ct_loader_create(s->d, &opts, &loader));
	st = ct_loader_seek(loader, s->epoch, 0);
	if (st == CT_OK)
		st = ct_loader_next(loader, 0, &batch);
	if (st == CT_OK)
		st = show_batch(s, &batch, count);
	ct_loader_release(loader, &batch);
	ct_loader_destroy(loader);
	return st;
}

static enum ct_status show(struct show *s)
{
	const struct ct_dataset_info *info = ct_dataset_info(s->d);
	struct ct__choice choice = {0};
	int64_t epoch;
	enum ct_status st;

	if (info->kind == CT_SAMPLE_F32)
		return CT_FAIL(CT_USAGE, "data set %s has no images to show", info->name);
	CT_TRY(ct_cli_number("--epoch", s->o->epoch, 0, 0, UINT32_MAX - 1, &epoch));
	CT_TRY(ct_run_plan_make(s->c, 1, info, NULL, &s->plan));
	s->epoch = (uint32_t)epoch;
	s->shape = ct_plan_input_at(&s->plan, s->epoch);
	s->scale = (SIDE + s->shape.w / 2) / s->shape.w;
	s->scale = s->scale > 1 ? s->scale : 1;
	s->grid.cell_w = s->shape.w * s->scale;
	s->grid.cell_h = s->shape.h * s->scale;
	if (s->o->mixup) {
		CT_TRY(show_mixup(s));
	} else {
		st = choose(s, &choice);
		if (st == CT_OK)
			st = show_samples(s, &choice);
		ct_free(choice.ids);
		CT_TRY(st);
	}
	printf("%s: %d image%s of %d x %d pixels as in epoch %u with seed %lld\n", s->path, s->grid.n,
	       ct_plural(s->grid.n), s->shape.w, s->shape.h, s->epoch, (long long)s->c->run.seed);
	if (!s->o->mixup && (s->plan.mixup > 0 || s->plan.cutmix > 0))
		printf("mixup and cutmix, which combine pairs of images, are not shown; --mixup shows them\n");
	return CT_OK;
}

enum ct_status ct_cmd_data_show(const struct ct_cli *cli)
{
	struct show s = {.cli = cli, .o = cli->own, .path = cli->out ? cli->out : "grid.png"};
	struct ct_config *c = NULL;
	ct_dataset *d = NULL;
	enum ct_status st;

	if (ct_file_exists(s.path) && !cli->force) {
		CT_FAIL(CT_USAGE, "%s exists", s.path);
		return ct_error_hint("--out writes another file, and --force replaces this one");
	}
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_plan_open_data(c, true, NULL, &d);
	s.c = c;
	s.d = d;
	if (st == CT_OK)
		st = show(&s);
	ct_grid_release(&s.grid);
	ct_dataset_close(d);
	ct_config_destroy(c);
	return st;
}
