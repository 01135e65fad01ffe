/* If the host can access device memory, reading, writing and mirrors wait for the stream and then use the memory
 * directly. Otherwise they copy through pinned memory, because copies of a device reach no other host memory. In both
 * cases the wait comes before the access: a mirror of host-visible memory is valid only because nothing that was posted
 * is still running.
 *
 * The generation number is what users of derived values rely on, so every function here that changes the contents calls
 * ct_arena_touch when it posts the change, not when the change is done. A mirror for writing touches the arena when it
 * is closed. */
#include "base/device/arena.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct ct_arena {
	ct_device *device;
	enum ct_dtype dtype;
	size_t n;
	char *memory;
	bool owns;
	uint64_t generation;
};

enum ct_status ct_arena_wrap(ct_device *d, enum ct_dtype t, size_t n, void *memory, ct_arena **out)
{
	ct_arena *a;

	if ((uintptr_t)memory % ct_dtype_bytes(t))
		return CT_FAIL(CT_BUG, "the memory of a %s arena is not aligned", ct_dtype_name(t));
	CT_TRY_ALLOC(a = CT_NEW(ct_arena));
	*a = (ct_arena){.device = d, .dtype = t, .n = n, .memory = memory, .generation = 1};
	*out = a;
	return CT_OK;
}

enum ct_status ct_arena_create(ct_device *d, enum ct_dtype t, size_t n, ct_arena **out)
{
	size_t bytes;
	enum ct_status st;
	void *memory;

	if (__builtin_mul_overflow(n ? n : 1, ct_dtype_bytes(t), &bytes))
		return CT_FAIL(CT_NOMEM, "an arena of %zu elements of %s is too large", n, ct_dtype_name(t));
	CT_TRY(ct_device_mem_alloc(d, bytes, true, &memory));
	st = ct_arena_wrap(d, t, n, memory, out);
	if (st < 0)
		ct_device_mem_free(d, memory);
	else
		(*out)->owns = true;
	return st;
}

void ct_arena_destroy(ct_arena *a)
{
	if (!a)
		return;
	if (a->owns)
		ct_device_mem_free(a->device, a->memory);
	ct_free(a);
}

ct_device *ct_arena_device(const ct_arena *a)
{
	return a->device;
}

enum ct_dtype ct_arena_dtype(const ct_arena *a)
{
	return a->dtype;
}

size_t ct_arena_elems(const ct_arena *a)
{
	return a->n;
}

size_t ct_arena_bytes(const ct_arena *a)
{
	return a->n * ct_dtype_bytes(a->dtype);
}

void *ct_arena_at(const ct_arena *a, size_t i)
{
	CT_ASSERT(i <= a->n);
	return a->memory + i * ct_dtype_bytes(a->dtype);
}

uint64_t ct_arena_generation(const ct_arena *a)
{
	return a->generation;
}

void ct_arena_touch(ct_arena *a)
{
	a->generation++;
}

enum ct_status ct_arena_copy(ct_arena *dst, const ct_arena *src, ct_stream *s)
{
	CT_ASSERT(dst->device == src->device && dst->dtype == src->dtype && dst->n == src->n);
	ct_arena_touch(dst);
	return ct_device_copy(dst->device, dst->memory, src->memory, ct_arena_bytes(src), s);
}

enum ct_status ct_arena_zero(ct_arena *a, ct_stream *s)
{
	ct_arena_touch(a);
	return ct_device_fill(a->device, a->memory, 0, ct_arena_bytes(a), s);
}

/* Copies between device memory and any host memory, through a buffer that the device can access. */
static enum ct_status transfer(ct_device *d, void *device, void *host, size_t bytes, bool to_host, ct_stream *s)
{
	enum ct_status st;
	void *staging;

	if (ct_device_caps(d)->host_visible) {
		CT_TRY(ct_stream_sync(s, CT_FOREVER));
		memcpy(to_host ? host : device, to_host ? device : host, bytes);
		return CT_OK;
	}
	CT_TRY(ct_device_host_alloc(d, bytes, &staging));
	if (!to_host)
		memcpy(staging, host, bytes);
	CT_TRY_GOTO(ct_device_copy(d, to_host ? staging : device, to_host ? device : staging, bytes, s), st, out);
	CT_TRY_GOTO(ct_stream_sync(s, CT_FOREVER), st, out);
	if (to_host)
		memcpy(host, staging, bytes);
out:
	ct_device_host_free(d, staging);
	return st;
}

enum ct_status ct_arena_read(const ct_arena *a, size_t first, size_t n, void *host, ct_stream *s)
{
	CT_ASSERT(first <= a->n && n <= a->n - first);
	if (n == 0)
		return CT_OK;
	return transfer(a->device, ct_arena_at(a, first), host, n * ct_dtype_bytes(a->dtype), true, s);
}

enum ct_status ct_arena_write(ct_arena *a, size_t first, size_t n, const void *host, ct_stream *s)
{
	CT_ASSERT(first <= a->n && n <= a->n - first);
	if (n == 0)
		return CT_OK;
	ct_arena_touch(a);
	return transfer(a->device, ct_arena_at(a, first), (void *)host, n * ct_dtype_bytes(a->dtype), false, s);
}

enum ct_status ct_mirror_open(ct_arena *a, enum ct_mirror_access access, ct_stream *s, struct ct_mirror *out)
{
	struct ct_mirror m = {.n = a->n, .arena = a, .stream = s, .writes = access == CT_MIRROR_WRITE};
	enum ct_status st;

	*out = (struct ct_mirror){0};
	if (ct_device_caps(a->device)->host_visible) {
		CT_TRY(ct_stream_sync(s, CT_FOREVER));
		m.data = a->memory;
		*out = m;
		return CT_OK;
	}
	m.copied = true;
	CT_TRY(ct_device_host_alloc(a->device, a->n ? ct_arena_bytes(a) : 1, &m.data));
	CT_TRY_GOTO(ct_device_copy(a->device, m.data, a->memory, ct_arena_bytes(a), s), st, fail);
	CT_TRY_GOTO(ct_stream_sync(s, CT_FOREVER), st, fail);
	*out = m;
	return CT_OK;
fail:
	ct_device_host_free(a->device, m.data);
	return st;
}

enum ct_status ct_mirror_close(struct ct_mirror *m)
{
	enum ct_status st = CT_OK;

	if (m->arena && m->writes) {
		ct_arena_touch(m->arena);
		if (m->copied) {
			st = ct_device_copy(m->arena->device, m->arena->memory, m->data, ct_arena_bytes(m->arena),
					    m->stream);
			if (st == CT_OK)
				st = ct_stream_sync(m->stream, CT_FOREVER);
		}
	}
	ct_mirror_drop(m);
	return st;
}

void ct_mirror_drop(struct ct_mirror *m)
{
	if (m->copied)
		ct_device_host_free(m->arena->device, m->data);
	*m = (struct ct_mirror){0};
}
