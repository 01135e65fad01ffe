/* A rank with a GPU and the communicator nccl, for tests. */
#ifndef CT_TESTS_DIST_NCCL_GPU_RIG_H
#define CT_TESTS_DIST_NCCL_GPU_RIG_H

#include "base/device/device.h"
#include "dist/comm/comm.h"
#include "tests/dist/scene.h"

enum { N = 3000 };

struct rig {
	ct_comm *c;
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e;
	float *x, *host; /* [N] device memory, pinned memory */
};

/* Opens the GPU whose index is the rank, and everything except the communicator. */
void open_gpu(struct ct_world *w, struct rig *r);
enum ct_status open_nccl(struct ct_world *w, const struct scene *s, struct rig *r);
/* Both; the communicator must open. */
struct rig open_rig(struct ct_world *w, const struct scene *s);
void close_rig(struct rig *r);
void hand_over(struct rig *r, ct_stream *from, ct_stream *to);

#endif
