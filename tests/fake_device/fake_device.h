/* The core of the two fake devices: the software GPU (tests/soft_gpu) and `device: lazy` (tests/lazy). Both execute
 * posted work on the CPU, late and in random order, in memory that is closed to the host. They differ only in their
 * interfaces, CUDA's runtime and struct ct_device_ops, in their rules, and in how they report a mistake. This core
 * decides nothing of this. It consists of
 *
 *   memory.c    device memory: a reserved range of addresses that is inaccessible except while it is open. New and
 *               freed memory is filled with a byte that is a NaN in every floating-point type, and each block is
 *               followed by a guard;
 *   queue.c     streams, the operations that wait in them, and moments, which order streams;
 *   schedule.c  chooses, in an order that the seed determines, the stream that runs next while the host waits;
 *   capture.c   captures: posted work becomes nodes of a graph, and events become its edges;
 *   launch.c    runs the nodes of a graph in a random order that respects its edges.
 *
 * The structs are embedded in those of the device. If there is no memory for the host, the core ends the process,
 * except in fake_reserve. It has no lock. */
#ifndef CT_TESTS_FAKE_DEVICE_H
#define CT_TESTS_FAKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define FAKE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAKE_ASAN 1
#endif
#endif
#ifndef FAKE_ASAN
#define FAKE_ASAN 0
#endif

enum { FAKE_MAX_STREAMS = 128, FAKE_ALIGNMENT = 256, FAKE_GUARD = 256, FAKE_POISON = 0xFF };
#define FAKE_FOREVER INT64_MAX

struct fake_stream;
struct fake_work;
struct fake_machine;

/* ---- What the device defines --------------------------------------------------------------------------- */

/* Reports a mistake and ends the process. */
void fake_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Runs w, whose turn it is in s. Returns 0, an error of the device, or FAKE_NOT_READY: the work is not finished, and is
 * called again after other work has had a turn. */
enum { FAKE_NOT_READY = INT32_MIN };
int fake_run(struct fake_stream *s, struct fake_work *w);
/* Work of s has failed with this error. The core drops all work of the device, because devices do not recover. */
void fake_failed(struct fake_stream *s, int error);
/* Frees work that will not run again. */
void fake_work_free(struct fake_work *w);
/* Sleeps for a moment, because all work that could run is not ready. */
void fake_pause(struct fake_machine *m);
int64_t fake_now_ns(void);
/* Allocate and free zeroed memory for operations and moments, which are reused. fake_new may return NULL. */
void *fake_new(size_t bytes);
void fake_delete(void *p);

/* ---- Memory of the host ------------------------------------------------------------------------------- */

void *fake_alloc(size_t bytes);                                       /* zeroed */
void *fake_grow(void *p, int n, int *capacity, size_t element_bytes); /* makes room for element n */

/* ---- memory.c ------------------------------------------------------------------------------------------ */

struct fake_block {
	struct fake_block *next;
	char *at;
	size_t bytes;
};

struct fake_memory {
	char *base;                 /* reserved address range; NULL: not used yet */
	size_t total, used, extent; /* extent: length of the part that has been in use so far */
	struct fake_block *blocks;  /* sorted by address */
	/* Memory is taken in a circle of a few MiB and of the double of what is in use, so that freed memory stays
	 * unused for some time, and large freed blocks are returned to the system. Otherwise, the first gap is taken.
	 */
	bool circular;
	char *next_fit;
	bool open;
};
/* Opens the memory, and returns a block, or NULL if there is no room. bytes is at least 1, and the alignment 256 or a
 * larger power of two. */
void *fake_memory_alloc(struct fake_memory *m, size_t bytes, size_t alignment);
/* Opens the memory and frees the block that begins at p. Returns false if there is none. */
bool fake_memory_free(struct fake_memory *m, void *p);
/* Makes the memory accessible, or inaccessible, to this process. */
void fake_memory_open(struct fake_memory *m);
void fake_memory_close(struct fake_memory *m);
void fake_memory_release(struct fake_memory *m);
/* Returns the first block whose guard was overwritten, with the distance from its end; NULL if there is none. `before`
 * is a block of 0 bytes: the guard before the first block. With AddressSanitizer, guards and freed blocks are poisoned,
 * and nothing is checked here. The memory must be open. */
const struct fake_block *fake_memory_overrun(const struct fake_memory *m, size_t *distance);
extern const struct fake_block fake_memory_before;
/* Returns the block of a list that contains p, or NULL. */
struct fake_block *fake_block_find(struct fake_block *list, const void *p);
/* Returns whether [p, p + bytes) is in the block. NULL is allowed. */
bool fake_block_contains(const struct fake_block *b, const void *p, size_t bytes);

/* ---- queue.c ------------------------------------------------------------------------------------------- */

/* One recording of an event. It is shared by the event, the operation that reaches it, and those that wait for it. */
struct fake_moment {
	struct fake_moment *next; /* in the list of unused moments */
	struct fake_machine *machine;
	int refs;
	struct fake_stream *stream; /* that reaches it */
	bool reached;
	int64_t ns;
	uint64_t clock[FAKE_MAX_STREAMS]; /* for the device */
};
struct fake_moment *fake_moment_create(struct fake_stream *s);
struct fake_moment *fake_moment_keep(struct fake_moment *m);
void fake_moment_drop(struct fake_moment *m); /* NULL is allowed */
void fake_moment_reach(struct fake_moment *m);

struct fake_event {
	struct fake_moment *moment; /* NULL: never recorded, or recorded last in a capture */
	/* If the last recording was part of a capture: its id, and the nodes that the event represents. */
	unsigned capture_id;
	int *nodes;
	int n_nodes;
};
void fake_event_release(struct fake_event *e);

enum fake_kind { FAKE_RUN, FAKE_EVENT_RECORD, FAKE_EVENT_WAIT };
/* Immutable work, shared by the queues and graphs that contain it. Only a graph contains the last two kinds: the event
 * is recorded, or waited for, each time that the graph runs. */
struct fake_work {
	int refs;
	enum fake_kind kind;
	struct fake_event *event;
	/* May be NULL. In a graph, the work may start when the nodes on which it depends have started, and not yet
	 * ended. This is then called before it runs. */
	void (*start)(struct fake_stream *s, struct fake_work *w);
};
struct fake_work *fake_work_keep(struct fake_work *w);
void fake_work_drop(struct fake_work *w);

enum fake_op_kind { FAKE_OP_WORK, FAKE_OP_RECORD, FAKE_OP_WAIT, FAKE_OP_LAUNCH };
struct fake_op {
	struct fake_op *next;
	enum fake_op_kind kind;
	union {
		struct fake_work *work;
		struct fake_moment *moment;
		struct fake_launch *launch;
	};
};

struct fake_stream {
	struct fake_machine *machine;
	int slot, device;
	struct fake_op *first, **end;
	bool held;    /* during the current wait, the stream runs only when its work is needed */
	bool stalled; /* its work was not ready, and no stream has made progress since */
	bool busy;    /* its first operation is being executed */
	/* capture.c */
	struct fake_capture *capture; /* to which its work is added; NULL */
	int *deps;                    /* nodes on which the next captured node depends */
	int n_deps, deps_capacity;
};

struct fake_machine { /* streams that take turns */
	void *owner;  /* for the device */
	uint64_t rng;
	struct fake_stream *streams[FAKE_MAX_STREAMS];
	int n_streams;
	struct fake_capture *captures; /* in progress */
	unsigned last_capture_id;
	struct fake_op *unused_ops;
	struct fake_moment *unused_moments;
	int n_unused_ops, n_unused_moments;
};
/* Makes room, so that the next calls that post this many operations and create this many moments need no memory.
 * Returns false if there is none; posting without a reservation then ends the process. */
bool fake_reserve(struct fake_machine *m, int n_ops, int n_moments);
void fake_machine_release(struct fake_machine *m);
void fake_seed(struct fake_machine *m, uint64_t seed);
/* Returns a uniformly distributed random number in [0, n). */
unsigned fake_draw(struct fake_machine *m, unsigned n);
void fake_stream_add(struct fake_machine *m, struct fake_stream *s, int device);
/* Removes a stream that is empty. Its slot is given to another one. */
void fake_stream_remove(struct fake_stream *s);
/* Post to the end of the queue, even if the stream is capturing. The first one takes ownership of a reference. */
void fake_post_work(struct fake_stream *s, struct fake_work *w);
void fake_post_record(struct fake_stream *s, struct fake_event *e);
void fake_post_wait(struct fake_stream *s, struct fake_moment *m);
void fake_push(struct fake_stream *s, struct fake_op op);
void fake_pop(struct fake_stream *s); /* removes the first operation */

/* ---- schedule.c ---------------------------------------------------------------------------------------- */

/* What the host waits for: the moment if there is one, else the stream if there is one, else all streams of the device.
 */
struct fake_target {
	int device;
	struct fake_stream *stream;
	struct fake_moment *moment;
};
bool fake_is_done(const struct fake_machine *m, const struct fake_target *t);
/* Runs work until t is done. Returns false if the deadline, on the clock of fake_now_ns,
 * passes before; some work runs even if it has passed. */
bool fake_wait(struct fake_machine *m, const struct fake_target *t, int64_t deadline_ns);
/* Runs a random amount of work. */
void fake_progress(struct fake_machine *m);
/* Drops the work of a device that has failed. Nothing waits for it any more. */
void fake_drop_work(struct fake_machine *m, int device);

/* ---- capture.c, launch.c ------------------------------------------------------------------------------- */

struct fake_node {
	struct fake_work *work;
	int *deps, *followers;
	int n_deps, n_followers;
};
struct fake_graph { /* nodes in the order of their capture; immutable after the capture has ended */
	int refs;
	struct fake_node *nodes;
	int n_nodes, capacity;
};
struct fake_graph *fake_graph_keep(struct fake_graph *g);
void fake_graph_drop(struct fake_graph *g);

struct fake_capture {
	struct fake_capture *next;
	unsigned id;
	struct fake_stream *origin;
	struct fake_graph *graph;
};
/* From now on, the device adds work that is posted to s as nodes. */
void fake_capture_begin(struct fake_capture *c, struct fake_stream *s);
/* Takes ownership of a reference. */
void fake_capture_work(struct fake_stream *s, struct fake_work *w);
void fake_capture_record(struct fake_stream *s, struct fake_event *e);
/* Makes s wait for an event of the capture c, and join the capture if it has not. */
void fake_capture_wait(struct fake_capture *c, struct fake_stream *s, const struct fake_event *e);
/* Returns NULL if the capture is not in progress. */
struct fake_capture *fake_capture_find(const struct fake_machine *m, unsigned id);
/* Ends the capture: all streams leave it, and the graph is the caller's. Returns whether the origin waits for each
 * node. */
bool fake_capture_end(struct fake_capture *c);

/* Posts a graph: its work runs after what was posted to s before, and before what is posted later. Runs of a graph do
 * not overlap: the run waits for *last, if it is not NULL, and its own end becomes *last. If fault is not 0, the run
 * fails with this error. */
void fake_launch(struct fake_graph *g, struct fake_stream *s, struct fake_moment **last, int fault);
/* Runs one node; sets *done if it was the last one. Returns 0, FAKE_NOT_READY or the error of the work. */
int fake_launch_step(struct fake_launch *l, struct fake_stream *s, bool *done);
void fake_launch_drop(struct fake_launch *l);

#endif
