/* A rank with a communicator and a device that has streams, and what it does with both: the same tests for the device
 * "lazy" and for GPUs. */
#ifndef CT_TESTS_DIST_STREAM_RIG_H
#define CT_TESTS_DIST_STREAM_RIG_H

#include "base/device/device.h"
#include "tests/dist/scene.h"

enum { N = 3000 };

struct rig {
	ct_comm *c;
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e;
	float *x, *host; /* [N] device memory, pinned memory */
};

/* Opens everything except the communicator: the GPU whose index is the rank if s->gpu is set, else the device "lazy".
 */
void open_device(struct ct_world *w, const struct scene *s, struct rig *r);
enum ct_status open_comm_of(struct ct_world *w, const struct scene *s, struct rig *r);
/* Both; the communicator must open, and s->variant is the seed of the order in which streams run. */
struct rig open_rig(struct ct_world *w, const struct scene *s);
void close_rig(struct rig *r);

/* Functions of ranks. Two sums on two streams, ordered by events, several times with other input. */
void sums(struct ct_world *world, void *arg);
/* The same sums, recorded once and posted again. */
void recorded(struct ct_world *world, void *arg);

#endif
