/* All micro-batches of a slot lie in one allocation, at offsets that follow from the largest sizes. Arrays that a
 * batch does not have keep their place, so addresses depend only on the micro-batch. A recording contains these
 * addresses: when the memory grows, which happens only with another size of the images, recordings have to be made
 * again. Nothing waits before a copy, because the slot is free; an event makes the compute stream wait after it. */
#include "trainer/run/step/step_input.h"

enum { ALIGN = 256 };

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

enum ct_status ct_step_input_init(struct ct_step_input *in, ct_stream *s)
{
	*in = (struct ct_step_input){.stream = s};
	return ct_event_create(ct_stream_device(s), false, &in->copied);
}

void ct_step_input_release(struct ct_step_input *in)
{
	if (in->stream)
		ct_device_mem_free(ct_stream_device(in->stream), in->memory);
	ct_event_destroy(in->copied);
	*in = (struct ct_step_input){0};
}

static enum ct_status grow(struct ct_step_input *in, size_t bytes)
{
	ct_device *d = ct_stream_device(in->stream);
	void *memory;

	if (in->bytes >= bytes)
		return CT_OK;
	ct_device_mem_free(d, in->memory);
	in->memory = NULL;
	in->bytes = 0;
	CT_TRY(ct_device_mem_alloc(d, bytes, false, &memory));
	in->memory = memory;
	in->bytes = bytes;
	return CT_OK;
}

/* Returns the address of the copy, or NULL if there is no array. *at is the place for arrays of n rows; it is moved
 * past them. */
static enum ct_status copy(struct ct_step_input *in, const void *array, size_t row_bytes, size_t n_rows, size_t n,
			   char **at, const void **out)
{
	char *to = *at;

	*at += aligned(row_bytes * n_rows);
	*out = array ? to : NULL;
	return array ? ct_device_copy(ct_stream_device(in->stream), to, array, row_bytes * n, in->stream) : CT_OK;
}

static size_t micro_bytes(const struct ct_step_input_size *size)
{
	const size_t rows = size->n_rows, word = sizeof(float);

	return aligned(size->x_bytes * rows) + 3 * aligned(word * rows) + aligned(size->targets * word * rows);
}

enum ct_status ct_step_input_copy(struct ct_step_input *in, int micro, const struct ct_step_input_size *size,
				  struct ct_batch *b)
{
	const size_t rows = size->n_rows, n = (size_t)b->n, word = sizeof(float);
	const void *x, *labels, *labels_b, *mix, *targets;
	char *at;

	_Static_assert(sizeof(*b->labels) == sizeof(*b->mix), "labels and shares have the same size");
	CT_ASSERT(n <= rows && micro < size->n_micros);
	CT_TRY(grow(in, micro_bytes(size) * (size_t)size->n_micros));
	at = in->memory + micro_bytes(size) * (size_t)micro;
	CT_TRY(copy(in, b->rows ? (const void *)b->rows : b->x, size->x_bytes, rows, n, &at, &x));
	CT_TRY(copy(in, b->labels, word, rows, n, &at, &labels));
	CT_TRY(copy(in, b->labels_b, word, rows, n, &at, &labels_b));
	CT_TRY(copy(in, b->mix, word, rows, n, &at, &mix));
	CT_TRY(copy(in, b->targets, size->targets * word, rows, n, &at, &targets));
	if (b->rows)
		b->rows = x;
	else
		b->x = x;
	b->labels = labels;
	b->labels_b = labels_b;
	b->mix = mix;
	b->targets = targets;
	b->on_device = true;
	return CT_OK;
}

enum ct_status ct_step_input_wait(struct ct_step_input *in, ct_stream *s)
{
	CT_TRY(ct_event_record(in->copied, in->stream));
	return ct_stream_wait_event(s, in->copied);
}
