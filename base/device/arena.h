/* Arenas: typed blocks of device memory, and host mirrors of them.
 *
 * Code outside of an engine never dereferences device memory. Work on the device takes an arena or a span; work on the
 * host (a checkpoint, a digest, an import, a test) opens a mirror, which is the arena itself if the host may access it,
 * otherwise a copy.
 *
 * An arena counts its changes: whoever posts work that writes to it calls ct_arena_touch, so that values derived from
 * it (folded weights) are recomputed only when the generation has changed. */
#ifndef CT_BASE_DEVICE_ARENA_H
#define CT_BASE_DEVICE_ARENA_H

#include "base/device/device.h"
#include "base/dtype.h"

typedef struct ct_arena ct_arena;

struct ct_span { /* elements [first, first + n) */
	ct_arena *arena;
	size_t first, n;
};

/* n elements of type t, all zero, 256-byte aligned. Returns owned. */
enum ct_status ct_arena_create(ct_device *d, enum ct_dtype t, size_t n, ct_arena **out) CT_MUST_CHECK;
/* The same in memory of the caller, which outlives the arena (for example memory of a communicator). It is device
 * memory of d. */
enum ct_status ct_arena_wrap(ct_device *d, enum ct_dtype t, size_t n, void *memory, ct_arena **out) CT_MUST_CHECK;
void ct_arena_destroy(ct_arena *a); /* NULL is allowed */

ct_device *ct_arena_device(const ct_arena *a);
enum ct_dtype ct_arena_dtype(const ct_arena *a);
size_t ct_arena_elems(const ct_arena *a);
size_t ct_arena_bytes(const ct_arena *a);
/* The device address of element i: for engines, communicators and functions posted to a stream. */
void *ct_arena_at(const ct_arena *a, size_t i);

/* Changes whenever the contents may have changed. Never 0. */
uint64_t ct_arena_generation(const ct_arena *a);
void ct_arena_touch(ct_arena *a);

/* Post to s. dst and src have the same type and number of elements. */
enum ct_status ct_arena_copy(ct_arena *dst, const ct_arena *src, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_arena_zero(ct_arena *a, ct_stream *s) CT_MUST_CHECK;
/* n elements from `first` to or from host memory: after all work posted to s so far; waits until it is done. */
enum ct_status ct_arena_read(const ct_arena *a, size_t first, size_t n, void *host, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_arena_write(ct_arena *a, size_t first, size_t n, const void *host, ct_stream *s) CT_MUST_CHECK;

/* An arena as the host sees it. data [elems] is valid from open to close; nothing that uses the arena is posted in
 * between. */
struct ct_mirror {
	void *data;
	size_t n;
	ct_arena *arena;
	ct_stream *stream;
	bool copied, writes;
};
enum ct_mirror_access { CT_MIRROR_READ, CT_MIRROR_WRITE }; /* WRITE: data also starts with the contents */
/* Waits for the work posted to s. Reading an arena does not change its generation. */
enum ct_status ct_mirror_open(ct_arena *a, enum ct_mirror_access access, ct_stream *s,
			      struct ct_mirror *out) CT_MUST_CHECK;
/* Posts the changed contents back (WRITE) and waits; releases. A zeroed mirror is allowed. */
enum ct_status ct_mirror_close(struct ct_mirror *m) CT_MUST_CHECK;
/* Releases without writing back: for error paths. */
void ct_mirror_drop(struct ct_mirror *m);

#endif
