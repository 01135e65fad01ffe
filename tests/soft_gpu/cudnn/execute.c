/* Variant packs, and the execution of plans as work of a stream. */
#include "tests/soft_gpu/cudnn/cudnn_impl.h"

#include <stdlib.h>
#include <time.h>

#include "tests/soft_gpu/cudnn/soft_cudnn.h"

cudnnStatus_t soft__finalize_pack(struct soft__descriptor *d)
{
	const struct soft__value *uids = soft__find(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
				 *pointers = soft__find(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

	if ((uids ? uids->n : 0) != (pointers ? pointers->n : 0))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "ptrs_count != uids_count");
	for (int64_t i = 0; uids && i < uids->n; i++) {
		const int64_t *uid = uids->data;

		for (int64_t k = 0; k < i; k++) {
			if (uid[k] == uid[i])
				soft_gpu_fail("cudnn: a variant pack has tensor %lld twice", (long long)uid[i]);
		}
	}
	return CUDNN_STATUS_SUCCESS;
}

/* Puts the pointer in its place. */
static cudnnStatus_t place(struct soft__run *r, int64_t uid, void *pointer)
{
	for (int i = 0; i < r->graph->n_tensors; i++) {
		const struct soft__tensor *t = &r->graph->tensors[i];

		if (t->uid != uid)
			continue;
		if (t->is_virtual)
			soft_gpu_fail("cudnn: the variant pack has memory for the virtual tensor %lld", (long long)uid);
		if (!pointer)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the pointer of tensor %lld is NULL",
					    (long long)uid);
		if ((uintptr_t)pointer % (uintptr_t)t->alignment != 0)
			return soft__refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
					    "the pointer of tensor %lld is not aligned to %lld bytes", (long long)uid,
					    (long long)t->alignment);
		r->memory[i] = pointer;
		return CUDNN_STATUS_SUCCESS;
	}
	soft_gpu_fail("cudnn: the variant pack has tensor %lld, which is not in the plan", (long long)uid);
}

static cudnnStatus_t place_all(struct soft__run *r, const struct soft__descriptor *pack)
{
	const struct soft__value *uids = soft__find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
				 *pointers = soft__find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
				 *workspace = soft__find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
	cudnnStatus_t st = CUDNN_STATUS_SUCCESS;

	for (int64_t i = 0; !st && uids && i < uids->n; i++)
		st = place(r, ((int64_t *)uids->data)[i], ((void **)pointers->data)[i]);
	for (int i = 0; !st && i < r->graph->n_tensors; i++) {
		if (!r->graph->tensors[i].is_virtual && !r->memory[i])
			st = soft__refuse(CUDNN_STATUS_BAD_PARAM, "the variant pack has no memory for tensor %lld",
					  (long long)r->graph->tensors[i].uid);
	}
	r->workspace = workspace ? *(void **)workspace->data : NULL;
	if (!st && r->engine.workspace_bytes > 0 && !r->workspace)
		st = soft__refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace of %lld bytes",
				  (long long)r->engine.workspace_bytes);
	return st;
}

static bool overlap(const struct soft_range *a, const struct soft_range *b)
{
	return (uintptr_t)a->address < (uintptr_t)b->address + b->bytes &&
	       (uintptr_t)b->address < (uintptr_t)a->address + a->bytes;
}

static bool is_pointwise_graph(const struct soft__graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		if (g->ops[i].kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
			return false;
	}
	return true;
}

/* What the plan reads and writes. */
static int list_ranges(const struct soft__run *r, struct soft_range *out)
{
	const struct soft__graph *g = r->graph;
	int n = 0;

	for (int i = 0; i < g->n_tensors; i++) {
		if (r->memory[i])
			out[n++] =
				(struct soft_range){r->memory[i], soft__span_bytes(&g->tensors[i]), g->is_written[i]};
	}
	if (r->engine.workspace_bytes > 0)
		out[n++] = (struct soft_range){r->workspace, (size_t)r->engine.workspace_bytes, true};
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < i; k++) {
			bool in_place = is_pointwise_graph(g) && out[i].address == out[k].address &&
					out[i].bytes == out[k].bytes && out[i].written != out[k].written;

			if ((out[i].written || out[k].written) && overlap(&out[i], &out[k]) && !in_place)
				soft_gpu_fail(
					"cudnn: the plan writes [%p, +%zu), which overlaps [%p, +%zu) of the same plan",
					out[out[i].written ? i : k].address, out[out[i].written ? i : k].bytes,
					out[out[i].written ? k : i].address, out[out[i].written ? k : i].bytes);
		}
	}
	return n;
}

static atomic_llong slow_engine = -1;
static atomic_int slow_stage, n_finalizing, n_overlaps;

void soft_cudnn_set_slow(int64_t engine, enum soft_cudnn_stage stage)
{
	slow_stage = (int)stage;
	slow_engine = engine;
}

int soft_cudnn_overlaps(void)
{
	return n_overlaps;
}

static void be_slow(int64_t engine, int stage)
{
	if (engine == slow_engine && stage == slow_stage)
		(void)nanosleep(&(struct timespec){0, 30000000}, NULL);
}

void soft__begin_finalizing(int64_t engine)
{
	n_finalizing++;
	be_slow(engine, SOFT_CUDNN_FINALIZE);
}

void soft__end_finalizing(void)
{
	n_finalizing--;
}

static atomic_llong broken_engine = -1;
static atomic_int broken_stage;

void soft_cudnn_set_broken(int64_t engine, enum soft_cudnn_stage stage)
{
	broken_stage = (int)stage;
	broken_engine = engine;
}

bool soft__is_wrong(int64_t engine)
{
	const char *number = getenv("SOFT_CUDNN_WRONG");

	return (engine == broken_engine && broken_stage == SOFT_CUDNN_WRONG) ||
	       (number && *number && engine == strtoll(number, NULL, 10));
}

cudnnStatus_t soft__check_broken(int64_t engine, int stage)
{
	if (engine != broken_engine || stage != broken_stage)
		return CUDNN_STATUS_SUCCESS;
	return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR, "engine %lld is broken", (long long)engine);
}

static cudaError_t run(void *args)
{
	be_slow(((const struct soft__run *)args)->engine.index, SOFT_CUDNN_EXECUTE);
	soft__interpret(args);
	return cudaSuccess;
}

static void release(void *args)
{
	soft__graph_drop(((struct soft__run *)args)->graph);
}

cudnnStatus_t soft__execute(cudaStream_t stream, const struct soft__descriptor *plan,
			    const struct soft__descriptor *pack)
{
	struct soft_range ranges[SOFT__MAX_TENSORS + 1];
	struct soft__run r = {.graph = plan->graph, .engine = plan->engine};
	struct soft_work w = {
		.name = "cudnnBackendExecute", .run = run, .args = &r, .args_bytes = sizeof(r), .release = release};
	cudnnStatus_t st;
	cudaError_t e;

	if (plan->kind != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
	    pack->kind != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
		soft_gpu_fail("cudnn: descriptors of types %d and %d instead of a plan and a variant pack",
			      (int)plan->kind, (int)pack->kind);
	if (!plan->is_final || !pack->is_final)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
				    "the plan or the variant pack is not finalized");
	st = soft__check_broken(plan->engine.index, SOFT_CUDNN_EXECUTE);
	if (!st && !plan->has_handle)
		st = soft__check_broken(plan->engine.index, SOFT_CUDNN_EXECUTE_WITHOUT_HANDLE);
	if (!st)
		st = place_all(&r, pack);
	if (st)
		return st;
	n_overlaps += n_finalizing > 0;
	w.ranges = ranges;
	w.n_ranges = list_ranges(&r, ranges);
	atomic_fetch_add(&r.graph->refs, 1);
	e = soft_gpu_post(stream, &w);
	if (e != cudaSuccess)
		return soft__refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "posting the plan: %s",
				    cudaGetErrorString(e));
	return CUDNN_STATUS_SUCCESS;
}
