/* Data sets are copied if the batches can be computed from descriptions of rows and if they fit: with
 * data.on_device=auto into a quarter of the free memory; programs are compiled later and need memory, too. Memory is
 * allocated for all data sets or for none. A lack of memory with `auto` means that they stay on the host; with `on`, it
 * is an error. The copy goes through one pinned buffer, and waits for each part before the buffer is filled again. The
 * loader and the transforms decide the random choices in both cases, so results do not depend on where the data is. */
#define CT_LOG_COMPONENT "data"
#include "trainer/run/session/resident.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define STAGE_BYTES ((size_t)4 << 20) /* copied to the device at once */
#define FREE_PART 4                   /* data sets may take up this part of the free memory */

enum { N_MODES = 2 };

static const ct_dataset *dataset_of(const struct ct_session_data *data, int mode)
{
	return mode == CT_TRAIN ? data->train : data->val;
}

static const struct ct_transform *transform_of(const struct ct_session *s, int mode)
{
	return mode == CT_TRAIN ? &s->plan.transform : &s->plan.val_transform;
}

static uint64_t bytes_of(const ct_dataset *d)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);

	return (uint64_t)info->n * info->sample_bytes;
}

/* Sets *out to NULL if all data sets can be copied to the device, otherwise to the reason why not, which may be stored
 * in `text`. */
static enum ct_status find_reason(const struct ct_session *s, char *text, size_t len, const char **out)
{
	bool chosen = s->cfg->data.on_device == CT_CFG_ON_DEVICE_ON;
	struct ct_device_info device;
	uint64_t bytes = 0;

	for (int mode = 0; mode < N_MODES; mode++) {
		const ct_dataset *d = dataset_of(&s->data, mode);
		const struct ct_dataset_info *info = d ? ct_dataset_info(d) : NULL;

		*out = d ? ct_transform_why_not_described(transform_of(s, mode), info) : NULL;
		if (!*out && d && !chosen && !info->in_memory)
			*out = "the images are computed as they are needed";
		if (*out)
			return CT_OK;
		bytes += d ? bytes_of(d) : 0;
	}
	CT_TRY(ct_device_info(s->device, &device));
	if (bytes <= device.free_bytes / (chosen ? 1 : FREE_PART))
		return CT_OK;
	snprintf(text, len, "they need %.1f MiB, but %.1f MiB of the memory of the device are free%s",
		 (double)bytes / 1048576, (double)device.free_bytes / 1048576,
		 chosen ? "" : ", and they may take up a quarter of it");
	*out = text;
	return CT_OK;
}

/* Copies the samples through `stage`, pinned memory of at least one sample and STAGE_BYTES. */
static enum ct_status copy_samples(const struct ct_session *s, const ct_dataset *d, uint8_t *stage, void *to)
{
	const size_t each = ct_dataset_info(d)->sample_bytes;
	const uint32_t n = ct_dataset_info(d)->n, most = each < STAGE_BYTES ? (uint32_t)(STAGE_BYTES / each) : 1;
	ct_stream *stream = ct_engine_stream(s->engine);

	for (uint32_t first = 0, count; first < n; first += count) {
		count = n - first < most ? n - first : most;
		for (uint32_t i = 0; i < count; i++)
			CT_TRY(ct_dataset_read(d, first + i, stage + i * each, NULL, NULL));
		CT_TRY(ct_device_copy(s->device, (uint8_t *)to + first * each, stage, count * each, stream));
		CT_TRY(ct_stream_sync(stream, CT_FOREVER));
	}
	return CT_OK;
}

/* Allocates device memory for all data sets, or for none of them. */
static enum ct_status alloc_all(struct ct_session *s)
{
	enum ct_status st = CT_OK;

	ct_device_purpose(s->device, "data sets");
	for (int mode = 0; mode < N_MODES && st == CT_OK; mode++)
		if (dataset_of(&s->data, mode))
			st = ct_device_mem_alloc(s->device, bytes_of(dataset_of(&s->data, mode)), false,
						 &s->data.samples[mode]);
	ct_device_purpose(s->device, NULL);
	if (st < 0)
		ct_resident_release(s->device, &s->data);
	return st;
}

static enum ct_status place(struct ct_session *s, int mode)
{
	const ct_dataset *d = dataset_of(&s->data, mode);
	const struct ct_dataset_info *info = ct_dataset_info(d);
	const size_t stage_bytes = info->sample_bytes > STAGE_BYTES ? info->sample_bytes : STAGE_BYTES;
	struct ct_net_data data = {.samples = s->data.samples[mode], .n = info->n};
	void *stage;

	ct_augment_fill(&transform_of(s, mode)->augment, info->c, data.fill);
	CT_TRY(ct_device_host_alloc(s->device, stage_bytes, &stage));
	enum ct_status st = copy_samples(s, d, stage, s->data.samples[mode]);
	ct_device_host_free(s->device, stage);
	CT_TRY(st);
	return ct_net_bind_data(s->net, (enum ct_mode)mode, &data);
}

static enum ct_status place_all(struct ct_session *s)
{
	int64_t t0 = ct_now_ns();
	uint64_t bytes = 0;

	for (int mode = 0; mode < N_MODES; mode++) {
		if (!dataset_of(&s->data, mode))
			continue;
		CT_TRY(place(s, mode));
		bytes += bytes_of(dataset_of(&s->data, mode));
	}
	CT_INFO("copied the data sets to the memory of the device (%.1f MiB in %.2f s)", (double)bytes / 1048576,
		ct_seconds_since(t0));
	return CT_OK;
}

enum ct_status ct_resident_place(struct ct_session *s)
{
	bool chosen = s->cfg->data.on_device == CT_CFG_ON_DEVICE_ON;
	const char *why;
	char text[512];

	if (s->cfg->data.on_device == CT_CFG_ON_DEVICE_OFF || s->pipe) /* the last stage needs labels, but no images */
		return CT_OK;
	if (!ct_engine_gathers(s->engine)) {
		if (!chosen)
			return CT_OK;
		CT_FAIL(CT_CONFIG, "data.on_device is on, but on the device %s batches are prepared by the host",
			ct_device_kind(s->device));
		return ct_error_hint("use data.on_device=auto, or device=cuda");
	}
	CT_TRY(find_reason(s, text, sizeof(text), &why));
	if (!why) {
		enum ct_status st = alloc_all(s);

		if (st == CT_OK)
			return place_all(s);
		if (st != CT_NOMEM || chosen)
			return st;
		snprintf(text, sizeof(text), "%s", ct_error_message());
		ct_error_clear();
		why = text;
	}
	if (chosen) {
		CT_FAIL(CT_CONFIG, "data.on_device is on, but the data sets cannot be copied to the device: %s", why);
		return ct_error_hint("use data.on_device=auto");
	}
	CT_INFO("the data sets stay in the memory of the host: %s", why);
	return CT_OK;
}

void ct_resident_release(ct_device *device, struct ct_session_data *data)
{
	for (int mode = 0; mode < N_MODES; mode++) {
		ct_device_mem_free(device, data->samples[mode]);
		data->samples[mode] = NULL;
	}
}

void ct_resident_set_opts(const struct ct_session *s, enum ct_mode mode, struct ct_loader_opts *lo)
{
	lo->describe = s->data.samples[mode] != NULL;
	if (lo->describe && s->cfg->data.workers == CT_CFG_AUTO)
		lo->n_threads = 0;
}

struct ct_batch ct_resident_batch(const struct ct_loader_batch *b)
{
	if (b->rows)
		return (struct ct_batch){.n = (int)b->n, .rows = b->rows, .first = b->in_batch};
	return (struct ct_batch){.n = (int)b->n,
				 .x = b->x,
				 .labels = b->labels,
				 .labels_b = b->labels_b,
				 .mix = b->mix,
				 .targets = b->targets,
				 .first = b->in_batch};
}
