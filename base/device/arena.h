/* Arenas, which are typed blocks of device memory, and mirrors, through which the host reads and writes them.
 *
 * Code outside an engine never dereferences device memory. Work on the device uses an arena or a span, which is a
 * part of an arena. Work on the host (a checkpoint, a digest, an import, a test) opens a mirror. If the host can
 * access the memory of the arena, the mirror is the arena itself; otherwise it is a copy.
 *
 * Each arena has a generation number, which changes whenever the contents may have changed: code that posts work that
 * writes to the arena must call ct_arena_touch. Values derived from the arena, such as folded weights, are recomputed
 * only if the generation has changed. */
#ifndef CT_BASE_DEVICE_ARENA_H
#define CT_BASE_DEVICE_ARENA_H

#include "base/device/device.h"
#include "base/dtype.h"

typedef struct ct_arena ct_arena;

struct ct_span { /* elements [first, first + n) */
	ct_arena *arena;
	size_t first, n;
};

/* Creates an arena of n zeroed elements of type t in memory that is 256-byte aligned. The caller owns *out. */
enum ct_status ct_arena_create(ct_device *d, enum ct_dtype t, size_t n, ct_arena **out) CT_MUST_CHECK;
/* Creates an arena in existing memory, for example in memory of a communicator. The memory is borrowed and not zeroed.
 * It must be device memory of d and must outlive the arena. */
enum ct_status ct_arena_wrap(ct_device *d, enum ct_dtype t, size_t n, void *memory, ct_arena **out) CT_MUST_CHECK;
void ct_arena_destroy(ct_arena *a); /* NULL is allowed */

ct_device *ct_arena_device(const ct_arena *a);
enum ct_dtype ct_arena_dtype(const ct_arena *a);
size_t ct_arena_elems(const ct_arena *a);
size_t ct_arena_bytes(const ct_arena *a);
/* Returns the device address of element i, for engines, communicators and functions that are posted to a stream. */
void *ct_arena_at(const ct_arena *a, size_t i);

/* ct_arena_generation returns the generation number, which is never 0. ct_arena_touch changes it. */
uint64_t ct_arena_generation(const ct_arena *a);
void ct_arena_touch(ct_arena *a);

/* Post a copy, or a fill with zeros, to s. dst and src must have the same type and number of elements. */
enum ct_status ct_arena_copy(ct_arena *dst, const ct_arena *src, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_arena_zero(ct_arena *a, ct_stream *s) CT_MUST_CHECK;
/* Copy n elements, starting at element `first`, to or from host memory. The copy runs after all work that was posted to
 * s earlier, and the function waits until the copy is done. */
enum ct_status ct_arena_read(const ct_arena *a, size_t first, size_t n, void *host, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_arena_write(ct_arena *a, size_t first, size_t n, const void *host, ct_stream *s) CT_MUST_CHECK;

/* A mirror: the elements of an arena in memory that the host can access. data [n] is valid from ct_mirror_open to
 * ct_mirror_close. While the mirror is open, no work that uses the arena may be posted. */
struct ct_mirror {
	void *data;
	size_t n;
	ct_arena *arena;
	ct_stream *stream;
	bool copied, writes;
};
/* With either value, data initially contains the elements of the arena. */
enum ct_mirror_access { CT_MIRROR_READ, CT_MIRROR_WRITE };
/* Waits for the work posted to s and opens a mirror. Opening for reading does not change the generation of the
 * arena. */
enum ct_status ct_mirror_open(ct_arena *a, enum ct_mirror_access access, ct_stream *s,
			      struct ct_mirror *out) CT_MUST_CHECK;
/* Releases the mirror. If it was opened with CT_MIRROR_WRITE, first writes data back to the arena and waits until this
 * is done. A zeroed mirror is allowed. */
enum ct_status ct_mirror_close(struct ct_mirror *m) CT_MUST_CHECK;
/* Releases the mirror without writing it back, for error paths. */
void ct_mirror_drop(struct ct_mirror *m);

#endif
