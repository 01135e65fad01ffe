/* A C interface to gloo: one context over TCP, with blocking collectives. It is implemented by the only C++ files of
 * the project: gloo_engine.cc, and gloo_transport.cc and gloo_link.cc, through which gloo communicates. They form the
 * shared object ctrain_gloo.so, which is loaded when the first engine is opened (base/process/module.h). The functions
 * throw no exceptions. They are not thread safe, except that ct__gloo_start may run at the same time as ct__gloo_run.
 * After a failure the engine can only be closed. */
#ifndef CT_DIST_COMM_GLOO_GLOO_ENGINE_H
#define CT_DIST_COMM_GLOO_GLOO_ENGINE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/process/module.h"
#include "dist/comm/comm_op_impl.h"

typedef struct ct_gloo ct_gloo;
typedef struct ct_gloo_message ct_gloo_message; /* a pending send or receive */

struct ct_gloo_opts {
	int rank, size;
	const int *fds;     /* [size] non-blocking connections to the other ranks, which must stay open */
	int64_t timeout_ns; /* timeout of one operation */
};

/* An operation. Its tag must be the same on all ranks, and different operations must have different tags: messages with
 * different tags never match. */
struct ct_gloo_op {
	enum ct_comm_kind kind;
	const void *src;
	void *dst;
	size_t n;
	enum ct_dtype dtype;
	enum ct_redop op;
	int root;
	uint32_t tag;
};

/* Opens an engine and starts its thread, which inherits the signal mask and scheduling policy of the caller. */
enum ct_status ct__gloo_open(const struct ct_gloo_opts *opts, ct_gloo **out) CT_MUST_CHECK;
void ct__gloo_close(ct_gloo *g);
/* Runs an operation other than send and recv. Errors are CT_TIMEOUT, CT_PEER_LOST (a connection broke) or CT_COMM, with
 * gloo's message. */
enum ct_status ct__gloo_run(ct_gloo *g, const struct ct_gloo_op *op) CT_MUST_CHECK;
/* For send and recv. ct__gloo_start does not block. ct__gloo_finish waits until the message has been transferred, and
 * frees it even on failure. */
enum ct_status ct__gloo_start(ct_gloo *g, const struct ct_gloo_op *op, ct_gloo_message **out) CT_MUST_CHECK;
enum ct_status ct__gloo_finish(ct_gloo *g, ct_gloo_message *m) CT_MUST_CHECK;

/* The table that the shared object exports as ct_gloo_module. Only gloo_load.c uses it. */
struct ct_gloo_engine;
struct ct_gloo_module {
	struct ct_module_head head;
	enum ct_status (*open)(const struct ct_gloo_opts *opts, struct ct_gloo_engine **out);
	void (*close)(struct ct_gloo_engine *e);
	enum ct_status (*run)(struct ct_gloo_engine *e, const struct ct_gloo_op *op);
	enum ct_status (*start)(struct ct_gloo_engine *e, const struct ct_gloo_op *op, ct_gloo_message **out);
	enum ct_status (*finish)(struct ct_gloo_engine *e, ct_gloo_message *m);
};
extern const struct ct_gloo_module ct_gloo_module;

#ifdef __cplusplus
}
#endif
#endif
