#include "tests/data/encoded.h"

#include <stdio.h>
#include <string.h>

#include "data/image/image.h"

static enum ct_status fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label)
{
	const struct encoded_set *s = (const struct encoded_set *)d;

	if (s->rotten[i])
		return CT_FAIL(s->io ? CT_IO : CT_DATA, "rotten");
	CT_TRY(ct_bytes_reserve(buf, s->images[i].n));
	memcpy(buf->data, s->images[i].p, s->images[i].n);
	buf->n = s->images[i].n;
	if (label)
		*label = (int32_t)(i % 10);
	return CT_OK;
}

static void describe(const ct_dataset *d, uint32_t i, char *text, size_t len)
{
	(void)d;
	snprintf(text, len, "shard 3: key \"%u\"", i);
}

static const struct ct_dataset_ops ops = {.fetch = fetch, .describe = describe};

static struct bytes make_image(uint32_t i)
{
	int h = 1 + (int)(i * 7 % 67), w = 1 + (int)(i * 13 % 71);
	uint8_t *rgb = ct_calloc((size_t)(h * w), 3);
	struct bytes b;

	for (int k = 0; k < 3 * h * w; k++)
		rgb[k] =
			(uint8_t)((uint32_t)(k % 3) * 60 + (uint32_t)(k / 3 % w) * (i + 2) + (uint32_t)(k / 3 / w) * 3);
	assert_ok(ct_image_encode_jpeg(rgb, w, h, 80, &b.p, &b.n));
	ct_free(rgb);
	return b;
}

struct encoded_set *encoded_open(uint32_t n)
{
	struct encoded_set *s = ct_calloc(1, sizeof(*s));

	s->images = ct_calloc(n, sizeof(*s->images));
	s->rotten = ct_calloc(n, sizeof(*s->rotten));
	s->base = (ct_dataset){
		.ops = &ops,
		.info = {.name = "encoded", .n = n, .kind = CT_SAMPLE_ENCODED, .c = 3, .n_classes = 10, .n_groups = 1}};
	for (uint32_t i = 0; i < n; i++) {
		s->images[i] = make_image(i);
		if (s->images[i].n > s->base.info.max_encoded_bytes)
			s->base.info.max_encoded_bytes = (uint32_t)s->images[i].n;
	}
	return s;
}

void encoded_spoil(struct encoded_set *s, const uint32_t *samples, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (i % 2)
			s->images[samples[i]].n /= 2;
		else
			s->rotten[samples[i]] = true;
	}
}

void encoded_close(struct encoded_set *s)
{
	for (uint32_t i = 0; i < s->base.info.n; i++)
		bytes_release(&s->images[i]);
	ct_free(s->images);
	ct_free(s->rotten);
	ct_free(s);
}

struct ct_loader_opts encoded_options(int n_threads)
{
	return (struct ct_loader_opts){
		.sampler = {.n = ENCODED_N,
			    .global_batch = ENCODED_BATCH,
			    .world = 1,
			    .accumulate = 1,
			    .seed = 5,
			    .shuffle = true},
		.transform = {.h = ENCODED_SIDE,
			      .w = ENCODED_SIDE,
			      .crop = CT_CROP_RANDOM,
			      .augment = {.flip = true, .brightness = 0.3f, .rand_augment = 1, .rand_magnitude = 9}},
		.n_threads = n_threads,
	};
}

ct_loader *encoded_loader(const struct encoded_set *s, const struct ct_loader_opts *o)
{
	ct_loader *l;

	assert_ok(ct_loader_create(&s->base, o, &l));
	return l;
}

enum ct_status encoded_decode(ct_image_decoder *d, const void *p, size_t n)
{
	struct bytes exact = bytes_copy(p, n);
	struct ct_image_header h;
	struct ct_pixels px;
	enum ct_status st;

	st = ct_image_open(d, exact.p, n, &h);
	if (st >= 0)
		st = ct_image_decode(d, (struct ct_box){0, 0, h.w, h.h}, 0, 0, &px);
	bytes_release(&exact);
	return st;
}
