/* Incorrect and correct uses of operation graphs, heuristics, plans and variant packs. */
#include "tests/soft_gpu/cudnn/misuse.h"

const char *misuse_device = "{\"deviceVer\":900,\"deviceName\":\"a GPU\"}";

#define F CUDNN_DATA_FLOAT
static const struct conv_spec plain = {{1, 1}, {1, 1}, {1, 1}};

/* ---- Graphs ----------------------------------------------------------------------------------------- */

/* y = relu(x + b) with an intermediate of this kind, listed in this order */
static void two_ops(struct builder *b, bool is_virtual, bool swapped, cudnnDataType_t t)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), c = simple_tensor(b, 1, 8, 1, 1, F),
				 v = make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, t, .is_virtual = is_virtual}),
				 y = simple_tensor(b, 2, 8, 5, 5, F),
				 add = make_pointwise(b, CUDNN_POINTWISE_ADD, x, c, NULL, v),
				 relu = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, v, NULL, NULL, y);
	cudnnBackendDescriptor_t ops[2] = {swapped ? relu : add, swapped ? add : relu};

	make_graph(b, 2, ops);
}

static void graph_good(struct builder *b)
{
	two_ops(b, true, false, F);
}

static void graph_swapped(struct builder *b)
{
	two_ops(b, true, true, F);
}

static void graph_stored_intermediate(struct builder *b)
{
	two_ops(b, false, false, F);
}

static void graph_empty(struct builder *b)
{
	finalize(b, make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
}

static void graph_of_tensors(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F);

	make_graph(b, 1, &x);
}

static void graph_op_not_final(struct builder *b)
{
	cudnnBackendDescriptor_t op = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

	make_graph(b, 1, &op);
}

static void graph_uid_of_two_tensors(struct builder *b)
{
	cudnnBackendDescriptor_t x = make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .uid = 7}),
				 y = make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .uid = 7}),
				 op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);

	make_graph(b, 1, &op);
}

static void graph_uid_of_two_shapes(struct builder *b)
{
	cudnnBackendDescriptor_t x = make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .uid = 7}),
				 c = make_tensor(b, &(struct tensor_spec){{1, 8, 1, 1}, F, .uid = 7}),
				 y = simple_tensor(b, 2, 8, 5, 5, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_ADD, x, c, NULL, y);

	make_graph(b, 1, &op);
}

static void graph_in_place(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, x);

	make_graph(b, 1, &op);
}

static void graph_virtual_input(struct builder *b)
{
	cudnnBackendDescriptor_t x = virtual_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);

	make_graph(b, 1, &op);
}

static void graph_virtual_output(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = virtual_tensor(b, 2, 8, 5, 5, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);

	make_graph(b, 1, &op);
}

static void graph_two_writers(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F);
	cudnnBackendDescriptor_t ops[2];

	ops[0] = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);
	ops[1] = make_pointwise(b, CUDNN_POINTWISE_IDENTITY, x, NULL, NULL, y);
	make_graph(b, 2, ops);
}

static void graph_disconnected(struct builder *b)
{
	cudnnBackendDescriptor_t ops[2];

	for (int i = 0; i < 2; i++) {
		cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F);

		ops[i] = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);
	}
	make_graph(b, 2, ops);
}

static void graph_cycle(struct builder *b)
{
	cudnnBackendDescriptor_t x = virtual_tensor(b, 2, 8, 5, 5, F), y = virtual_tensor(b, 2, 8, 5, 5, F);
	cudnnBackendDescriptor_t ops[2];

	ops[0] = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);
	ops[1] = make_pointwise(b, CUDNN_POINTWISE_IDENTITY, y, NULL, NULL, x);
	make_graph(b, 2, ops);
}

static void graph_same_op_twice(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), y = simple_tensor(b, 2, 8, 5, 5, F),
				 op = make_pointwise(b, CUDNN_POINTWISE_RELU_FWD, x, NULL, NULL, y);

	make_graph(b, 2, (cudnnBackendDescriptor_t[]){op, op});
}

/* ---- Plans ------------------------------------------------------------------------------------------ */

static cudnnBackendDescriptor_t good_graph(struct builder *b)
{
	cudnnBackendDescriptor_t x = simple_tensor(b, 2, 8, 5, 5, F), w = simple_tensor(b, 16, 8, 3, 3, F),
				 y = simple_tensor(b, 2, 16, 5, 5, F), op = make_conv(b, FORWARD, x, w, y, &plain);

	return make_graph(b, 1, &op);
}

static void heuristic(struct builder *b, bool graph, bool device, bool mode)
{
	const cudnnBackendHeurMode_t a = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t g = good_graph(b), dev = make_device(b, misuse_device),
				 h = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

	if (graph)
		set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
	if (device)
		set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, dev);
	if (mode)
		set(b, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &a);
	finalize(b, h);
}

static void heuristic_good(struct builder *b)
{
	heuristic(b, true, true, true);
}

static void heuristic_without_graph(struct builder *b)
{
	heuristic(b, false, true, true);
}

static void heuristic_without_mode(struct builder *b)
{
	heuristic(b, true, true, false);
}

static void heuristic_bad_mode(struct builder *b)
{
	cudnnBackendDescriptor_t g = good_graph(b), configs[MAX_CONFIGS];

	propose(b, g, make_device(b, misuse_device), (cudnnBackendHeurMode_t)9, configs);
}

static void heuristic_graph_not_final(struct builder *b)
{
	cudnnBackendDescriptor_t configs[MAX_CONFIGS];

	propose(b, make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), make_device(b, misuse_device), CUDNN_HEUR_MODE_A,
		configs);
}

static void results_before_finalize(struct builder *b)
{
	cudnnBackendDescriptor_t h = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
				 c = make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	int64_t n;

	if (!b->status)
		b->status = b->lib->get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &c);
}

static void results_into_a_tensor(struct builder *b)
{
	const cudnnBackendHeurMode_t a = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t g = good_graph(b), dev = make_device(b, misuse_device),
				 h = make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
				 t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	int64_t n;

	set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g);
	set_ref(b, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, dev);
	set(b, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &a);
	finalize(b, h);
	if (!b->status)
		b->status = b->lib->get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &t);
}

static void config_without_engine(struct builder *b)
{
	finalize(b, make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
}

static void plan_without_config(struct builder *b)
{
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

	set_ref(b, p, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, make_device(b, misuse_device));
	finalize(b, p);
}

static void plan_with_config_not_final(struct builder *b)
{
	set_ref(b, make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
		make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
}

static void workspace_before_finalize(struct builder *b)
{
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t n, bytes;

	if (!b->status)
		b->status = b->lib->get(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
}

static void engine_out_of_range(struct builder *b)
{
	cudnnBackendDescriptor_t e = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

	set_ref(b, e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, good_graph(b));
	set_i64(b, e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 100000);
	set_ref(b, e, CUDNN_ATTR_ENGINE_DEVICEPROP, make_device(b, misuse_device));
	finalize(b, e);
}

static void engine_without_graph(struct builder *b)
{
	cudnnBackendDescriptor_t e = make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);

	set_i64(b, e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
	set_ref(b, e, CUDNN_ATTR_ENGINE_DEVICEPROP, make_device(b, misuse_device));
	finalize(b, e);
}

static void device_bad_json(struct builder *b)
{
	make_device(b, "{\"deviceVer\":");
}

/* ---- Variant packs ---------------------------------------------------------------------------------- */

static char memory[64];

static void pack(struct builder *b, int64_t n_uids, int64_t n_pointers, bool workspace, int64_t second)
{
	const int64_t uids[2] = {1, second};
	void *pointers[2] = {memory, memory + 16}, *none = NULL;
	cudnnBackendDescriptor_t p = make(b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

	if (n_uids)
		set(b, p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n_uids, uids);
	if (n_pointers)
		set(b, p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n_pointers, pointers);
	if (workspace)
		set(b, p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &none);
	finalize(b, p);
}

static void pack_good(struct builder *b)
{
	pack(b, 2, 2, true, 2);
}

static void pack_counts_differ(struct builder *b)
{
	pack(b, 2, 1, true, 2);
}

static void pack_without_uids(struct builder *b)
{
	pack(b, 0, 2, true, 2);
}

static void pack_without_pointers(struct builder *b)
{
	pack(b, 2, 0, true, 2);
}

static void pack_without_workspace(struct builder *b)
{
	pack(b, 2, 2, false, 2);
}

static void pack_uid_twice(struct builder *b)
{
	pack(b, 2, 2, true, 1);
}

static void pack_null_pointer(struct builder *b)
{
	make_pack(b, 1, (int64_t[]){1}, (void *[]){NULL}, NULL);
}

static const struct misuse all[] = {
	STATUS(graph_good, SUCCESS),
	STATUS(graph_swapped, SUCCESS),
	STATUS(graph_stored_intermediate, SUCCESS),
	STATUS(graph_empty, BAD_PARAM),
	FAIL(graph_of_tensors, "type 17 as an operation"),
	STATUS(graph_op_not_final, BAD_PARAM_NOT_FINALIZED),
	FAIL(graph_uid_of_two_tensors, "reads tensor 7, which is its result"),
	FAIL(graph_uid_of_two_shapes, "two different tensors"),
	FAIL(graph_in_place, "reads tensor 1, which is its result"),
	STATUS(graph_virtual_input, SUCCESS),
	STATUS(graph_virtual_output, SUCCESS),
	STATUS(graph_two_writers, BAD_PARAM),
	STATUS(graph_disconnected, SUCCESS),
	STATUS(graph_cycle, BAD_PARAM),
	STATUS(graph_same_op_twice, BAD_PARAM),
	STATUS(heuristic_good, SUCCESS),
	STATUS(heuristic_without_graph, BAD_PARAM),
	STATUS(heuristic_without_mode, SUCCESS),
	FAIL(heuristic_bad_mode, "no heuristic 9"),
	STATUS(heuristic_graph_not_final, BAD_PARAM_NOT_FINALIZED),
	STATUS(results_before_finalize, NOT_INITIALIZED),
	FAIL(results_into_a_tensor, "need new configurations"),
	FAIL(config_without_engine, "without an engine"),
	STATUS(plan_without_config, BAD_PARAM_NOT_FINALIZED),
	STATUS(plan_with_config_not_final, SUCCESS),
	STATUS(workspace_before_finalize, NOT_INITIALIZED),
	STATUS(engine_out_of_range, NOT_SUPPORTED),
	STATUS(engine_without_graph, BAD_PARAM_NULL_POINTER),
	STATUS(device_bad_json, BAD_PARAM),
	STATUS(pack_good, SUCCESS),
	STATUS(pack_counts_differ, BAD_PARAM),
	STATUS(pack_without_uids, BAD_PARAM),
	STATUS(pack_without_pointers, BAD_PARAM),
	STATUS(pack_without_workspace, SUCCESS),
	FAIL(pack_uid_twice, "tensor 1 twice"),
	STATUS(pack_null_pointer, SUCCESS),
};
const struct misuses misused_graphs = {all, sizeof(all) / sizeof(*all)};
