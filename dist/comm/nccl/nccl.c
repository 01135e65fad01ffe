/* The table of the communicator, and the symbol by which the program finds it. */
#define CT_LOG_COMPONENT "dist"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/cuda_check.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/nccl/nccl_impl.h"
#include "dist/comm/nccl/nccl_module.h"
#include "dist/settings/nccl_defects.h"

enum { WORD_BYTES = 256 };

#define CLOSE_NS (10 * CT_SEC)
/* A wait that takes longer than this looks for the reason, then again at increasing intervals. */
#define DIAGNOSE_NS CT_SEC

static enum ct_status supports(const struct ct_world *w)
{
	if (!w->store)
		return CT_FAIL(CT_BUG, "communicator \"nccl\" needs a store");
	return CT_OK;
}

static enum ct_status check_device(const ct_device *d)
{
	if (d && strcmp(ct_device_kind(d), "cuda") == 0)
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "communicator \"nccl\" needs GPUs, but this rank computes on %s",
		d ? ct_device_kind(d) : "the CPU");
	return ct_error_hint("set device=cuda, or dist.backend=auto");
}

/* ---- closing */

static void memory_release(struct comm_nccl *n)
{
	while (n->memory) {
		struct nccl_memory *m = n->memory;

		n->memory = m->next;
		ct_device_mem_free(n->device, m->plain);
		if (m->registered && n->api.MemFree(m->registered) != ncclSuccess)
			(void)cudaGetLastError();
		ct_free(m);
	}
}

static enum ct_status deregister(struct comm_nccl *n, const struct nccl_memory *m)
{
	if (!m->window && !m->handle)
		return CT_OK;
	CT_TRY(ct__nccl_begin(n));
	if (m->window)
		return ct__nccl_end(n, n->api.CommWindowDeregister(n->nccl, m->window), "ncclCommWindowDeregister");
	return ct__nccl_end(n, n->api.CommDeregister(n->nccl, m->handle), "ncclCommDeregister");
}

/* Closes NCCL's communicator. All operations are done. */
static enum ct_status disconnect(struct comm_nccl *n)
{
	ncclResult_t r;

	for (const struct nccl_memory *m = n->memory; m; m = m->next)
		CT_TRY(deregister(n, m));
	CT_TRY(ct__nccl_begin(n));
	CT_TRY(ct__nccl_end(n, n->api.CommFinalize(n->nccl), "ncclCommFinalize"));
	CT_TRY(ct__nccl_begin(n));
	r = n->api.CommDestroy(n->nccl);
	n->nccl = NULL;
	pthread_mutex_unlock(&n->lock);
	return ct__nccl_check(&n->api, NULL, r, "ncclCommDestroy");
}

static void end_of_work(struct comm_nccl *n)
{
	const struct ct_error closed = {.status = CT_CANCELLED, .message = "communicator was closed"};
	struct ct_error before;

	ct_error_save(&before);
	if (n->open && !atomic_load(&n->base.dead) && n->n_posted == n->n_done) {
		ct__nccl_announce_close(n);
		if (n->base.opts.timeout_ns > CLOSE_NS)
			n->base.opts.timeout_ns = CLOSE_NS;
		if (disconnect(n) < 0)
			(void)ct__comm_die(&n->base);
	} else if (n->aborter.running) {
		ct__comm_die_of(&n->base, &closed);
	}
	ct_error_clear();
	if (before.status < 0)
		(void)ct_error_restore(&before);
}

static void close_comm(ct_comm *c)
{
	struct comm_nccl *n = (struct comm_nccl *)c;

	ct_device_remove_check(n->device, n);
	end_of_work(n);
	if (!ct__nccl_health_stop(n))
		return;
	ct_device_drain(n->device);
	ct__nccl_flights_release(n);
	memory_release(n);
	ct_device_mem_free(n->device, n->word);
	ct_stream_destroy(n->stream);
	pthread_cond_destroy(&n->wake);
	pthread_mutex_destroy(&n->abort_lock);
	pthread_mutex_destroy(&n->lock);
	ct__comm_release(c);
	ct_free(n);
}

/* ---- opening */

/* Adds to an error of the set-up what the user can switch off. Faults of the Fabric Manager or of a switch appear when
 * NCCL prepares the multicast of NVLink (NVLS): as a connection is made, at the first operation, or for a window. */
static enum ct_status suggest(enum ct_status st, bool windows)
{
	const char *nvls = getenv("NCCL_NVLS_ENABLE");
	struct ct_error e;

	ct_error_save(&e);
	/* The error of another rank comes with its hint. */
	if (e.cause_pid != 0 || (st != CT_DEVICE && !(windows && st == CT_COMM)))
		return st;
	if (windows)
		ct_error_hint(
			"set dist.nccl_windows=false: gradients are then in plain memory; NCCL_WIN_ENABLE=0 or NCCL_CUMEM_ENABLE=0 makes NCCL register no windows");
	if (!nvls || strcmp(nvls, "0") != 0)
		ct_error_hint(
			"if NCCL's message is about NVLS or multicast (CUDA error 401), set NCCL_NVLS_ENABLE=0 on all hosts, and check the Fabric Manager and the switches of NVLink");
	return st;
}

static enum ct_status wait_for_all(ct_comm *c)
{
	ct_work *w;

	CT_TRY(ct_comm_barrier(c, &w));
	return ct_work_wait(w);
}

static enum ct_status build(struct comm_nccl *n)
{
	void *p;

	CT_TRY(ct__nccl_api_open(&n->api));
	CT_TRY(ct_nccl_check_defects(n->api.version, n->base.opts.nccl_windows));
	CT_TRY(ct_stream_create(n->device, true, &n->stream));
	CT_TRY(ct_device_mem_alloc(n->device, WORD_BYTES, true, &p));
	n->word = p;
	CT_TRY(ct__nccl_health_start(n));
	CT_TRY(ct__nccl_connect(n));
	n->open = true;
	/* NCCL prepares some connections at the first operation, which must not be captured. */
	CT_TRY(wait_for_all(&n->base));
	ct_device_add_check(n->device, ct__nccl_check_wait, n);
	return CT_OK;
}

static enum ct_status open_comm(struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	struct comm_nccl *n;
	enum ct_status st;

	CT_TRY(check_device(opts->device));
	CT_TRY_ALLOC(n = CT_NEW(struct comm_nccl));
	n->device = opts->device;
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_init(&n->abort_lock, NULL);
	ct_cond_init(&n->wake);
	st = ct__comm_init(&n->base, &ct__comm_ops_nccl, world, opts);
	if (st == CT_OK)
		st = build(n);
	if (st < 0) {
		/* The other ranks get the reason. */
		if (n->aborter.running)
			st = suggest(ct__comm_die(&n->base), false);
		close_comm(&n->base);
		return st;
	}
	*out = &n->base;
	return CT_OK;
}

/* ---- memory */

static enum ct_status alloc_registered(struct comm_nccl *n, struct nccl_memory *m, size_t bytes)
{
	CT_TRY(ct__nccl_check(&n->api, NULL, n->api.MemAlloc(&m->registered, bytes), "ncclMemAlloc"));
	CT_TRY(ct_cuda_check(cudaMemset(m->registered, 0, bytes), "cudaMemset"));
	CT_TRY(ct_cuda_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize"));
	CT_TRY(ct__nccl_begin(n));
	CT_TRY(ct__nccl_end(
		n, n->api.CommWindowRegister(n->nccl, m->registered, bytes, &m->window, NCCL_WIN_COLL_SYMMETRIC),
		"ncclCommWindowRegister"));
	CT_INFO("%zu bytes are in %s", bytes,
		m->window ? "a symmetric window" : "plain memory, because NCCL has made no symmetric window");
	if (m->window)
		return CT_OK;
	/* These GPUs have no symmetric memory. */
	CT_TRY(ct__nccl_begin(n));
	return ct__nccl_end(n, n->api.CommRegister(n->nccl, m->registered, bytes, &m->handle), "ncclCommRegister");
}

static enum ct_status mem_alloc(ct_comm *c, size_t bytes, void **out)
{
	struct comm_nccl *n = (struct comm_nccl *)c;
	const size_t align = NCCL_WIN_REQUIRED_ALIGNMENT;
	struct nccl_memory *m;

	CT_TRY_ALLOC(m = CT_NEW(struct nccl_memory));
	m->next = n->memory;
	n->memory = m;
	if (c->opts.nccl_windows)
		CT_TRY(suggest(alloc_registered(n, m, (bytes + align) / align * align), true));
	else
		CT_TRY(ct_device_mem_alloc(n->device, bytes, true, &m->plain));
	*out = c->opts.nccl_windows ? m->registered : m->plain;
	return CT_OK;
}

/* ---- operations */

/* Keeps the order of peers and tags, because NCCL matches messages of a pair of ranks by their order only. */
static void add_message(struct comm_nccl *n, ct_work *w)
{
	ct_work **place = &n->messages;

	while (*place && ((*place)->root < w->root || ((*place)->root == w->root && (*place)->tag <= w->tag)))
		place = &(*place)->next;
	w->next = *place;
	*place = w;
}

static enum ct_status post(ct_comm *c, ct_work *w)
{
	struct comm_nccl *n = (struct comm_nccl *)c;

	if (w->n == 0 && w->kind != CT_COMM_BARRIER) {
		atomic_store_explicit(&w->status, CT_OK, memory_order_relaxed);
		return CT_OK;
	}
	n->n_posted++;
	CT_TRY(ct__nccl_stage(n, w));
	if (ct__comm_is_p2p(w->kind)) {
		add_message(n, w);
		return CT_OK;
	}
	CT_TRY(ct__nccl_issue_messages(n));
	CT_TRY(ct__nccl_issue(n, w, ct__nccl_flight(w)->src, ct__nccl_flight(w)->dst, n->stream));
	return ct__nccl_stage_back(n, w);
}

static enum ct_status post_to(ct_comm *c, const ct_work *w, ct_stream *s)
{
	struct comm_nccl *n = (struct comm_nccl *)c;
	enum ct_status st;

	if (ct_stream_device(s) != n->device)
		return CT_FAIL(CT_BUG, "a collective is posted to a stream of another device");
	if (atomic_load_explicit(&c->dead, memory_order_acquire))
		return ct_error_restore(&c->error);
	st = ct__nccl_issue_messages(n);
	if (st == CT_OK && w->n > 0)
		st = ct__nccl_issue(n, w, w->src, w->dst, s);
	return st < 0 ? ct__comm_die(c) : CT_OK;
}

/* Recorded and other steps follow each other without a wait, and a step may use two communicators. NCCL documents what
 * it needs for both (its manual, "Using NCCL with CUDA Graphs" and "Using multiple NCCL communicators concurrently").
 * The variables are on unless the user has switched them off (set_variables in open.c). */
static bool is_recordable(const ct_comm *c, char *why, size_t len)
{
	static const struct {
		const char *name;
		bool for_two;
	} needed[] = {{"NCCL_GRAPH_MIXING_SUPPORT", false}, {"NCCL_LAUNCH_ORDER_IMPLICIT", true}};

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		const char *value = getenv(needed[i].name);

		if (!value || strcmp(value, "0") != 0 || (needed[i].for_two && !c->opts.shares_device))
			continue;
		snprintf(why, len, "NCCL may wait forever in recorded steps with %s=0", needed[i].name);
		return false;
	}
	return true;
}

static enum ct_status test(ct_comm *c, ct_work *w)
{
	struct comm_nccl *n = (struct comm_nccl *)c;
	cudaError_t e;

	CT_TRY(ct__nccl_issue_messages(n));
	/* An abort also makes the event be reached, so look at the communicator after the event. */
	e = cudaEventQuery(ct__nccl_flight(w)->event);
	CT_TRY(ct__nccl_healthy(n));
	if (e == cudaErrorNotReady)
		return CT_INPROGRESS;
	CT_TRY(ct_cuda_check(e, "cudaEventQuery"));
	ct__nccl_land(n, w);
	atomic_store_explicit(&w->status, CT_OK, memory_order_relaxed);
	return CT_OK;
}

/* Finds out why w takes long. NCCL does not detect that the ranks disagree. */
static enum ct_status diagnose(struct comm_nccl *n, const ct_work *w, bool final)
{
	enum ct_status st;

	CT_TRY(ct__nccl_others_stay(n, w));
	st = ct__comm_diagnose(&n->base, w, final);
	if (st == CT_TIMEOUT)
		ct__comm_attribute_failure(&n->base, w);
	return st;
}

static enum ct_status wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	const int64_t start = ct_now_ns(), timeout = c->opts.timeout_ns;
	struct comm_nccl *n = (struct comm_nccl *)c;
	int64_t pause = timeout / 4 < DIAGNOSE_NS ? timeout / 4 : DIAGNOSE_NS, look = start + pause;
	enum ct_status st;

	ct__nccl_look_soon(n);
	while ((st = test(c, w)) == CT_INPROGRESS) {
		const int64_t now = ct_now_ns();

		if (now >= look || now >= deadline_ns) {
			CT_TRY(diagnose(n, w, now >= deadline_ns));
			pause = pause < 16 * DIAGNOSE_NS ? pause * 2 : pause;
			look = ct_now_ns() + pause;
		}
		ct__nccl_pause(start);
	}
	return st;
}

const struct ct_comm_ops ct__comm_ops_nccl = {
	.name = "nccl",
	.supports = supports,
	.open = open_comm,
	.close = close_comm,
	.mem_alloc = mem_alloc,
	.mem_on_device = true,
	.post = post,
	.test = test,
	.wait = wait,
	.post_to = post_to,
	.is_recordable = is_recordable,
	.poll = ct__nccl_poll,
	.abort = ct__nccl_abort,
};

static enum ct_status version(int *out)
{
	struct nccl_api api;

	CT_TRY(ct__nccl_api_open(&api));
	*out = api.version;
	return CT_OK;
}

__attribute__((visibility("default"))) const struct ct_nccl_module ct_nccl = {
	.head = {.abi = CT_MODULE_ABI, .build = CT_BUILD_ID},
	.ops = &ct__comm_ops_nccl,
	.version = version,
};
