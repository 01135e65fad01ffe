/* Sessions of libctrain_infer: nets on a CPU device, and the preparation of their inputs. A session has up to two nets,
 * one for images (bytes, which the net normalizes) and one for floats, each with its own copy of the weights; a net is
 * created by the first call that needs it. Of an image, only the box that the resizer reads is converted to its format
 * of four bytes per pixel. More inputs than the batch of the session are computed in several batches. */
#include <string.h>

#include "base/device/arena.h"
#include "base/thread.h"
#include "data/transform/resize.h"
#include "infer/api/api_impl.h"
#include "nn/engine.h"

enum { MAX_BATCH = 65536, MAX_THREADS = 1024, MAX_IMAGE_SIDE = 65500 };

/* A net for one kind of input. It is created by the first call that needs it. */
struct runner {
	ct_net *net;
	ct_program *program;
	void *x; /* [batch] inputs */
};

struct ctrain_session {
	const ctrain_model *model;
	int batch;
	ct_device *device;
	ct_engine *engine;
	struct runner images, floats;
	ct_resizer *resizer;
	uint8_t *rgbx,
		*rgb; /* scratch: the part of an image that is used, and an image before the conversion to gray */
	size_t rgbx_bytes;
	int32_t *labels; /* [batch] zeros, because the loss is not used */
	float *targets;  /* [batch, outputs] the same for regression */
};

static size_t input_elems(const ctrain_session *s)
{
	const struct ct_shape *in = &s->model->description.model.input;

	return (size_t)in->c * (size_t)in->h * (size_t)in->w;
}

static enum ct_status import_values(ctrain_session *s, ct_net *net)
{
	ct_stream *stream = ct_engine_stream(s->engine);
	const ct_graph *g = s->model->graph;
	struct ct_mirror params = {0}, buffers = {0};
	const float *v = s->model->values;
	enum ct_status st;
	float *to;

	CT_TRY(ct_mirror_open(ct_net_params(net), CT_MIRROR_WRITE, stream, &params));
	CT_TRY_GOTO(ct_mirror_open(ct_net_buffers(net), CT_MIRROR_WRITE, stream, &buffers), st, fail);
	to = buffers.data;
	for (int i = 0; i < ct__api_n_tensors(g); i++) {
		const size_t n = ct__api_tensor(g, i)->n;

		if (i < ct_graph_n_params(g)) {
			CT_TRY_GOTO(ct_net_import(net, &params, i, v), st, fail);
		} else {
			memcpy(to, v, n * sizeof(float));
			to += n;
		}
		v += n;
	}
	CT_TRY_GOTO(ct_mirror_close(&params), st, fail);
	return ct_mirror_close(&buffers);

fail:
	ct_mirror_drop(&params);
	ct_mirror_drop(&buffers);
	return st;
}

static void close_runner(struct runner *r)
{
	ct_program_destroy(r->program);
	ct_net_destroy(r->net);
	ct_free_aligned(r->x);
	*r = (struct runner){0};
}

static enum ct_status open_runner(ctrain_session *s, enum ct_input_kind kind, struct runner *r)
{
	const struct ct_description *d = &s->model->description;
	const size_t elem = kind == CT_INPUT_U8_NHWC ? 1 : sizeof(float);
	struct ct_net_opts opts = {.batch = s->batch, .input = kind, .autotune = CT_AUTOTUNE_OFF};
	enum ct_status st;

	memcpy(opts.mean, d->mean, sizeof(opts.mean));
	memcpy(opts.std, d->std, sizeof(opts.std));
	if (!(r->x = ct_calloc_aligned(64, (size_t)s->batch * input_elems(s) * elem)))
		return CT_NOMEM;
	CT_TRY_GOTO(ct_net_create(s->engine, s->model->graph, &opts, &r->net), st, fail);
	CT_TRY_GOTO(import_values(s, r->net), st, fail);
	CT_TRY_GOTO(ct_program_create(r->net, s->batch, CT_EVAL, &r->program), st, fail);
	return CT_OK;

fail:
	close_runner(r);
	return st;
}

/* Computes the n inputs in r->x. */
static enum ct_status run(ctrain_session *s, struct runner *r, int n, float *out)
{
	const ct_graph *g = s->model->graph;
	const struct ct_batch b = {.n = n,
				   .x = r->x,
				   .labels = s->model->info.regression ? NULL : s->labels,
				   .targets = s->model->info.regression ? s->targets : NULL};

	CT_TRY(ct_program_forward(r->program, &b));
	return ct_program_read(r->program, ct_graph_node(g, ct_graph_loss(g))->in[0], false, out);
}

static enum ct_status open_session(ctrain_session *s, int threads)
{
	const size_t n = (size_t)s->batch;

	CT_TRY_ALLOC(s->labels = CT_NEW_ARRAY(int32_t, n));
	CT_TRY_ALLOC(s->targets = CT_NEW_ARRAY(float, n *(size_t)s->model->info.outputs));
	CT_TRY(ct_device_open("cpu", 0, &s->device));
	return ct_engine_open("auto", s->device, threads > 0 ? threads : ct_cpu_count(), &s->engine);
}

int ctrain_session_open(const ctrain_model *model, int batch, int threads, ctrain_session **out,
			struct ctrain_error *error)
{
	enum ct_status st;
	ctrain_session *s;

	if (!model || !out || batch < 1 || batch > MAX_BATCH || threads < 0 || threads > MAX_THREADS)
		return ct__api_result(
			CT_FAIL(CT_USAGE,
				"ctrain_session_open: an argument is NULL, batch (%d) is not in 1..%d, or "
				"threads (%d) is not in 0..%d",
				batch, MAX_BATCH, threads, MAX_THREADS),
			error);
	s = CT_NEW(ctrain_session);
	if (!s)
		return ct__api_result(CT_NOMEM, error);
	s->model = model;
	s->batch = batch;
	st = open_session(s, threads);
	if (st < 0) {
		const int code = ct__api_result(st, error);

		ctrain_session_close(s);
		return code;
	}
	*out = s;
	return ct__api_result(CT_OK, error);
}

void ctrain_session_close(ctrain_session *s)
{
	if (!s)
		return;
	close_runner(&s->images);
	close_runner(&s->floats);
	ct_engine_close(s->engine);
	ct_device_close(s->device);
	ct_resizer_destroy(s->resizer);
	ct_free_aligned(s->rgbx);
	ct_free_aligned(s->rgb);
	ct_free(s->labels);
	ct_free(s->targets);
	ct_free(s);
}

/* Normalizes n inputs into the batch. */
static void normalize(ctrain_session *s, const float *x, int n)
{
	const struct ct_description *d = &s->model->description;
	const struct ct_shape *in = &d->model.input;
	const size_t plane = (size_t)in->h * (size_t)in->w;
	float *to = s->floats.x;

	for (int row = 0; row < n; row++) {
		for (int c = 0; c < in->c; c++) {
			const bool known = c < (int)CT_ARRAY_LEN(d->mean);
			const float mean = known ? d->mean[c] : 0, std = known ? d->std[c] : 1;

			for (size_t i = 0; i < plane; i++)
				*to++ = (*x++ - mean) / std;
		}
	}
}

static enum ct_status predict_float(ctrain_session *s, const float *x, int n, float *out)
{
	if (!s->floats.program)
		CT_TRY(open_runner(s, CT_INPUT_F32_NCHW, &s->floats));
	for (int i = 0; i < n; i += s->batch) {
		const int rows = n - i < s->batch ? n - i : s->batch;

		normalize(s, x + (size_t)i * input_elems(s), rows);
		CT_TRY(run(s, &s->floats, rows, out + (size_t)i * (size_t)s->model->info.outputs));
	}
	return CT_OK;
}

int ctrain_predict_float(ctrain_session *s, const float *x, int n, float *out, struct ctrain_error *error)
{
	if (!s || n < 0 || (n > 0 && (!x || !out)))
		return ct__api_result(CT_FAIL(CT_USAGE, "ctrain_predict_float: an argument is NULL, or n is negative"),
				      error);
	return ct__api_result(predict_float(s, x, n, out), error);
}

static enum ct_status reserve(uint8_t **p, size_t *have, size_t bytes)
{
	if (bytes <= *have)
		return CT_OK;
	ct_free_aligned(*p);
	*have = 0;
	CT_TRY_ALLOC(*p = ct_calloc_aligned(64, bytes));
	*have = bytes;
	return CT_OK;
}

/* Copies the box of an image in the format of the resizer. */
static enum ct_status view(ctrain_session *s, const struct ctrain_image *image, struct ct_box box,
			   struct ct_pixels *out)
{
	const size_t stride = image->stride ? image->stride : 3 * (size_t)image->width;
	uint8_t *p;

	CT_TRY(reserve(&s->rgbx, &s->rgbx_bytes, (size_t)box.w * (size_t)box.h * 4));
	p = s->rgbx;
	for (int y = box.y; y < box.y + box.h; y++) {
		const uint8_t *x = image->rgb + (size_t)y * stride + 3 * (size_t)box.x;

		for (int i = 0; i < box.w; i++, p += 4, x += 3)
			memcpy(p, x, 3);
	}
	*out = (struct ct_pixels){.rgbx = s->rgbx, .pitch = (size_t)box.w * 4, .box = box, .scale = 1};
	return CT_OK;
}

/* Resizes and crops an image to dst [H,W,C]. */
static enum ct_status prepare(ctrain_session *s, const struct ctrain_image *image, uint8_t *dst)
{
	const struct ct_shape *in = &s->model->description.model.input;
	struct ct_resize req = {.out_w = in->w, .out_h = in->h};
	struct ct_pixels pixels;

	if (!image->rgb || image->width < 1 || image->height < 1 || image->width > MAX_IMAGE_SIDE ||
	    image->height > MAX_IMAGE_SIDE || (image->stride && image->stride < 3 * (size_t)image->width))
		return CT_FAIL(CT_USAGE, "an image has no pixels, a side that is not in 1..%d, or rows that overlap",
			       MAX_IMAGE_SIDE);
	ct_resize_center(&req, image->width, image->height, s->model->description.resize);
	CT_TRY(view(s, image, ct_resize_window(&req), &pixels));
	if (in->c == 3)
		return ct_resize_run(s->resizer, &req, &pixels, dst);
	CT_TRY(ct_resize_run(s->resizer, &req, &pixels, s->rgb));
	ct_description_gray(s->rgb, (size_t)in->h * (size_t)in->w, dst);
	return CT_OK;
}

static enum ct_status open_images(ctrain_session *s)
{
	const struct ct_shape *in = &s->model->description.model.input;

	if (s->model->description.resize == 0)
		return CT_FAIL(CT_UNSUPPORTED, "the input of this model is not an image: use ctrain_predict_float");
	if (!s->resizer)
		CT_TRY(ct_resizer_create(&s->resizer));
	if (!s->rgb)
		CT_TRY_ALLOC(s->rgb = ct_calloc_aligned(64, (size_t)in->h * (size_t)in->w * 3));
	return s->images.program ? CT_OK : open_runner(s, CT_INPUT_U8_NHWC, &s->images);
}

static enum ct_status predict_rgb(ctrain_session *s, const struct ctrain_image *images, int n, float *out)
{
	CT_TRY(open_images(s));
	for (int i = 0; i < n; i += s->batch) {
		const int rows = n - i < s->batch ? n - i : s->batch;

		for (int k = 0; k < rows; k++)
			CT_TRY(prepare(s, &images[i + k], (uint8_t *)s->images.x + (size_t)k * input_elems(s)));
		CT_TRY(run(s, &s->images, rows, out + (size_t)i * (size_t)s->model->info.outputs));
	}
	return CT_OK;
}

int ctrain_predict_rgb(ctrain_session *s, const struct ctrain_image *images, int n, float *out,
		       struct ctrain_error *error)
{
	if (!s || n < 0 || (n > 0 && (!images || !out)))
		return ct__api_result(CT_FAIL(CT_USAGE, "ctrain_predict_rgb: an argument is NULL, or n is negative"),
				      error);
	return ct__api_result(predict_rgb(s, images, n, out), error);
}
