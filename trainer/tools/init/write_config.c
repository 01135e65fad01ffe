/* The text of the configuration that `ctrain init` writes. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/tools/init/init.h"

#define NAME_SHOWN 256 /* bytes of a file name, which has at most 255 */

/* Appends a string as a double-quoted YAML scalar. */
static void add_quoted(const char *text, struct ct_str *out)
{
	ct_str_add(out, "\"");
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			ct_str_addf(out, "\\x%02x", (unsigned)*text);
		else
			ct_str_addf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
	}
	ct_str_add(out, "\"");
}

/* `name` is in comments, which a line break in it would end. */
static void add_head(const struct ct_init_facts *f, const struct ct_recipe *r, const char *name, struct ct_str *out)
{
	struct ct_str plain = {0}, word = {0};

	ct_str_add_escaped(&plain, name, strlen(name), NAME_SHOWN);
	ct_str_add_shell(&word, ct_str_text(&plain));
	ct_str_addf(out,
		    "# Written by `ctrain init`. Change what you like; `ctrain help KEY` explains a key, for example\n"
		    "# `ctrain help optim.lr`, and docs/OWN_IMAGES.md explains how these values were chosen.\n#\n"
		    "#   ctrain data show %s      # look at augmented training images\n"
		    "#   ctrain %s                # train; run it again to continue an interrupted run\n#\n"
		    "# Found: %d classes, %u images%s, %.0f x %.0f pixels (median).\n\n",
		    ct_str_text(&word), ct_str_text(&word), f->survey.n_classes, f->n,
		    f->layout.has_val ? " for training" : "", f->width[1], f->height[1]);
	ct_str_release(&plain);
	ct_str_release(&word);
	ct_str_addf(out, "model:\n  name: %s", r->model);
	ct_str_add(out, r->small ? "         # a small network for images of about 32 x 32 pixels\n" : "\n");
	if (!r->small && r->size <= 64)
		ct_str_add(
			out,
			"  stem: imagenet         # cifar is more accurate for small images, but about 8 times slower\n");
	if (!r->small && r->few_images)
		ct_str_addf(
			out,
			"  # With few images, start from weights that were pretrained on ImageNet: convert torchvision's\n"
			"  # %s to safetensors (docs/MODELS.md), remove the three # below, and divide optim.lr by 10.\n"
			"  # weights: %s.safetensors\n"
			"  # strict: false        # the pretrained classification layer does not fit; train a new one\n",
			r->model, r->model);
}

static void add_labels(const struct ct_layout *l, struct ct_str *out)
{
	ct_str_add(out, "\n  labels:               # a CSV file, relative to dir\n    path: ");
	add_quoted(l->labels, out);
	ct_str_add(out, "\n    image: ");
	add_quoted(l->image_column, out);
	ct_str_add(out, "          # the column with the images, relative to train.path\n    class: ");
	add_quoted(l->class_column, out);
	if (l->split_column[0]) {
		ct_str_add(out, "\n    split: ");
		add_quoted(l->split_column, out);
		ct_str_add(out, "       # the column with train, val or test");
	}
	if (!l->val_labels[0])
		return;
	ct_str_add(out, "\n  val_labels: ");
	add_quoted(l->val_labels, out);
}

static void add_data(const struct ct_init_facts *f, const struct ct_recipe *r, struct ct_str *out)
{
	const struct ct_layout *l = &f->layout;

	ct_str_add(out, "\ndata:\n  name: imagefolder\n  dir: ");
	add_quoted(l->dir, out);
	if (l->labels[0])
		add_labels(l, out);
	ct_str_add(out, "\n  train:\n    path: ");
	if (l->train[0] == '.')
		ct_str_addf(out, ".                # the %s are in dir itself",
			    l->labels[0] ? "images" : "class directories");
	else
		add_quoted(l->train, out);
	ct_str_addf(out, "\n    size: %d              # width and height of training images, in pixels\n", r->size);
	if (l->val[0]) {
		ct_str_add(out, "  val:\n    path: ");
		add_quoted(l->val, out);
		ct_str_add(out, "\n");
	}
	if (!l->has_val)
		ct_str_addf(
			out,
			"  val_fraction: %g      # of the images of each class, for evaluation; chosen by run.seed and file names\n",
			r->val_fraction);
	if (r->small)
		ct_str_addf(
			out,
			"%s    resize: %d            # evaluate complete images, without cutting off their border\n",
			l->val[0] ? "" : "  val:\n", r->size);
	ct_str_addf(
		out,
		"  # Mean and standard deviation of the color channels of %u of the images, for values from 0 to 1.\n"
		"  mean: [%.4f, %.4f, %.4f]\n  std: [%.4f, %.4f, %.4f]\n",
		f->survey.n - f->survey.n_damaged, f->survey.mean[0], f->survey.mean[1], f->survey.mean[2],
		fmax(f->survey.std[0], 1e-3), fmax(f->survey.std[1], 1e-3), fmax(f->survey.std[2], 1e-3));
	ct_str_add(
		out,
		"  augment:\n    flip: true             # set this to false if left and right matter, for example for text\n");
	if (r->small)
		ct_str_add(out, "    area: [1, 1]           # do not crop ...\n    ratio: [1, 1]\n"
				"    crop_padding: 4        # ... but shift by up to 4 pixels\n");
	else
		ct_str_addf(out, "    area: [%g, 1]       # random crops of this part of the area of an image\n",
			    r->few_images ? 0.35 : 0.2);
}

static void add_training(const struct ct_recipe *r, struct ct_str *out)
{
	ct_str_addf(
		out,
		"\nbatch:\n  global: %-13u  # images per step, over all processes%s\n"
		"\noptim:\n  name: sgd\n  lr: %-17g  # 0.1 for a batch of 128 images; change both in the same proportion\n"
		"  momentum: 0.9\n  weight_decay: 5e-4\n"
		"\nschedule:\n  name: cosine\n  warmup_epochs: %d\n"
		"\ntrain:\n  epochs: %d\n",
		r->batch, r->less_memory ? "; halved until it fits into the memory" : "", r->lr, r->warmup_epochs,
		r->epochs);
}

void ct_init_write(const struct ct_init_facts *f, const struct ct_recipe *r, const char *name, struct ct_str *out)
{
	add_head(f, r, name, out);
	add_data(f, r, out);
	add_training(r, out);
}
