/* The state of a run at one step in host memory, in general a copy. A thread can write it to disk while training
 * continues. */
#ifndef CT_TRAINER_RUN_CHECKPOINT_SNAPSHOT_IMPL_H
#define CT_TRAINER_RUN_CHECKPOINT_SNAPSHOT_IMPL_H

#include "trainer/run/checkpoint/checkpoint.h"

enum { CT_SNAPSHOT_MAX_GROUPS = 8 };

/* Tensors whose names have a common prefix: those of the model (""), of an optimizer state, or of the EMA weights. */
struct ct_snapshot_group {
	const char *name;
	/* Copies of arenas, or mirrors of them, in which `arena` is set. */
	struct ct_mirror params;  /* has the parameters' layout */
	struct ct_mirror buffers; /* [ct_arena_elems(ct_net_buffers(net))], if has_buffers */
	bool has_buffers;
	const struct ct_whole_group *whole; /* borrowed; if it is not NULL, the values are there and not above */
};

struct ct_snapshot {
	ct_device *device;                                       /* borrowed; owns the memory of the copies */
	const ct_net *net;                                       /* borrowed, for its layout */
	const ct_graph *graph;                                   /* borrowed: the saved model */
	struct ct_snapshot_group groups[CT_SNAPSHOT_MAX_GROUPS]; /* 0: the model */
	int n_groups;
	struct ct_train_state state;
	char *config_lines, *net_plan;           /* net_plan: NULL: none */
	const char *description;                 /* borrowed; NULL: none */
	int64_t start_ns;                        /* time of the snapshot */
	const struct ct_checkpoint_guard *guard; /* borrowed; NULL: none */
};

/* Waits for the work posted to the net's engine, and copies the state, except for values in host memory if
 * src->unchanged is true. *snap must be zeroed, or must contain an earlier snapshot of the same net, whose memory is
 * then reused. The snapshot must be released before the device is closed, even if this function fails. */
enum ct_status ct__snapshot_take(const struct ct_checkpoint_source *src, struct ct_snapshot *snap) CT_MUST_CHECK;
void ct__snapshot_release(struct ct_snapshot *snap);
/* Writes and publishes the snapshot (trainer/run/checkpoint/checkpoint.c). May be called from any thread. */
enum ct_status ct__snapshot_write(const char *run_dir, const struct ct_snapshot *snap, int keep_last, bool best,
				  struct ct_checkpoint_result *out) CT_MUST_CHECK;

#endif
