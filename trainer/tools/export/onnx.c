/* Writes ONNX files (github.com/onnx/onnx, onnx.proto and Operators.md): one operator per operation of the graph, in
 * the form for inference. Parameters keep their names. Operators and attributes are named in the table of operations
 * (nn/graph/op.h), and how an attribute is written is defined here.
 *
 * Messages of protobuf are nested with their lengths in front. The graph, the only large one, is therefore made in two
 * passes: operations go to a buffer, then add_tensors counts the bytes of the weights, and after the length has been
 * written, it runs again and appends them. Both passes must give the same bytes. The length also decides whether the
 * file stays below the 2 GiB that protobuf allows. Values with a slash in their names are not parameters, inputs or
 * outputs, so they cannot collide with names of nodes. */
#include <stdio.h>
#include <string.h>

#include "base/protobuf.h"
#include "trainer/tools/export/export_impl.h"

enum { IR_VERSION = 8, OPSET = 17 };
enum { TYPE_FLOAT = 1, TYPE_INT64 = 7 };                             /* TensorProto.DataType */
enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 }; /* AttributeProto.AttributeType */

/* Field numbers of onnx.proto. */
enum {
	MODEL_IR_VERSION = 1,
	MODEL_PRODUCER_NAME = 2,
	MODEL_PRODUCER_VERSION = 3,
	MODEL_GRAPH = 7,
	MODEL_OPSET_IMPORT = 8,
	MODEL_METADATA_PROPS = 14,
	OPSET_VERSION = 2,
	ENTRY_KEY = 1,
	ENTRY_VALUE = 2,
	GRAPH_NODE = 1,
	GRAPH_NAME = 2,
	GRAPH_INITIALIZER = 5,
	GRAPH_INPUT = 11,
	GRAPH_OUTPUT = 12,
	NODE_INPUT = 1,
	NODE_OUTPUT = 2,
	NODE_NAME = 3,
	NODE_OP_TYPE = 4,
	NODE_ATTRIBUTE = 5,
	ATTRIBUTE_NAME = 1,
	ATTRIBUTE_F = 2,
	ATTRIBUTE_I = 3,
	ATTRIBUTE_LIST = 8,
	ATTRIBUTE_TYPE = 20,
	TENSOR_DIMS = 1,
	TENSOR_DATA_TYPE = 2,
	TENSOR_NAME = 8,
	TENSOR_RAW_DATA = 9,
	VALUE_INFO_NAME = 1,
	VALUE_INFO_TYPE = 2,
	TYPE_TENSOR = 1,
	TENSOR_TYPE_ELEM = 1,
	TENSOR_TYPE_SHAPE = 2,
	SHAPE_DIM = 1,
	DIM_VALUE = 1,
	DIM_PARAM = 2
};

/* Names of values that are not in the graph. Names of nodes contain no slash. */
#define INPUT "input"
#define NORMALIZED "/normalized"
#define MEAN "/mean"
#define STD "/std"
#define IMAGE_SHAPE "/image_shape" /* [N,F] as [N,F,1,1] */

struct writer {
	const struct ct_export_model *m;
	struct ct_export_value *values; /* [n nodes] */
	int logits;                     /* node that computes the output */
	const char *output;             /* name of the output */
	struct ct_str graph;            /* GraphProto without the initializers */
	bool uses_image_shape;
};

static void add_dim(struct ct_str *shape, int64_t n)
{
	struct ct_str dim = {0};

	if (n > 0)
		ct_pb_add_int(&dim, DIM_VALUE, n);
	else
		ct_pb_add_string(&dim, DIM_PARAM, "N");
	ct_pb_add_message(shape, SHAPE_DIM, &dim);
}

/* A float tensor with the dynamic dimension N and dims [n]. */
static void add_value_info(struct ct_str *graph, int field, const char *name, const int *dims, int n)
{
	struct ct_str info = {0}, type = {0}, tensor = {0}, shape = {0};

	add_dim(&shape, 0);
	for (int i = 0; i < n; i++)
		add_dim(&shape, dims[i]);
	ct_pb_add_int(&tensor, TENSOR_TYPE_ELEM, TYPE_FLOAT);
	ct_pb_add_message(&tensor, TENSOR_TYPE_SHAPE, &shape);
	ct_pb_add_message(&type, TYPE_TENSOR, &tensor);
	ct_pb_add_string(&info, VALUE_INFO_NAME, name);
	ct_pb_add_message(&info, VALUE_INFO_TYPE, &type);
	ct_pb_add_message(graph, field, &info);
}

static void add_attribute(struct ct_str *node, const char *name, int type, struct ct_str *value)
{
	struct ct_str a = {0};

	ct_pb_add_string(&a, ATTRIBUTE_NAME, name);
	ct_str_add_bytes(&a, ct_str_text(value), value->len);
	ct_pb_add_int(&a, ATTRIBUTE_TYPE, type);
	a.failed = a.failed || value->failed;
	ct_str_release(value);
	ct_pb_add_message(node, NODE_ATTRIBUTE, &a);
}

static void add_int(struct ct_str *node, const char *name, int64_t v)
{
	struct ct_str value = {0};

	ct_pb_add_int(&value, ATTRIBUTE_I, v);
	add_attribute(node, name, ATTRIBUTE_INT, &value);
}

static void add_float(struct ct_str *node, const char *name, float v)
{
	struct ct_str value = {0};

	ct_pb_add_float(&value, ATTRIBUTE_F, v);
	add_attribute(node, name, ATTRIBUTE_FLOAT, &value);
}

static void add_ints(struct ct_str *node, const char *name, const int *v, int n)
{
	struct ct_str value = {0};

	for (int i = 0; i < n; i++)
		ct_pb_add_int(&value, ATTRIBUTE_LIST, v[i]);
	add_attribute(node, name, ATTRIBUTE_INTS, &value);
}

/* Appends a node and releases its attributes. inputs: up to NULL. */
static void add_node(struct writer *w, const char *type, const char *output, const char *const *inputs,
		     struct ct_str *attributes)
{
	struct ct_str node = {0};

	for (; *inputs; inputs++)
		ct_pb_add_string(&node, NODE_INPUT, *inputs);
	ct_pb_add_string(&node, NODE_OUTPUT, output);
	ct_pb_add_string(&node, NODE_NAME, output);
	ct_pb_add_string(&node, NODE_OP_TYPE, type);
	if (attributes) {
		node.failed = node.failed || attributes->failed;
		ct_str_add_bytes(&node, ct_str_text(attributes), attributes->len);
		ct_str_release(attributes);
	}
	ct_pb_add_message(&w->graph, GRAPH_NODE, &node);
}

#define NAME_MAX_LEN 96 /* of nodes: 63, with a slash and a suffix */

/* The name of the value that a node computes. */
static const char *name_of(const struct writer *w, int id, char out[NAME_MAX_LEN])
{
	const bool is_output = id == w->logits && w->values[id].flat;

	if (id == 0)
		return ct__export_normalizes(w->m->description) ? NORMALIZED : INPUT;
	snprintf(out, NAME_MAX_LEN, "%s%s", is_output ? "" : "/",
		 is_output ? w->output : ct_graph_node(w->m->graph, id)->name);
	return out;
}

/* The name of the value `of` in the rank that node `user` needs. Appends a node that converts it if necessary. */
static const char *operand(struct writer *w, const char *user, int of, bool flat, char out[NAME_MAX_LEN])
{
	const int id = w->values[of].node;
	const char *name = name_of(w, id, out);
	char converted[NAME_MAX_LEN];

	if (w->values[of].flat == flat)
		return name;
	snprintf(converted, sizeof(converted), "/%s/%s", user, flat ? "flat" : "image");
	if (flat) {
		add_node(w, "Flatten", converted, (const char *const[]){name, NULL}, NULL);
	} else {
		add_node(w, "Reshape", converted, (const char *const[]){name, IMAGE_SHAPE, NULL}, NULL);
		w->uses_image_shape = true;
	}
	memcpy(out, converted, sizeof(converted));
	return out;
}

static void add_kernel_shape(struct ct_str *a, const struct ct_node *n)
{
	add_ints(a, "kernel_shape", (const int[]){n->win.r, n->win.s}, 2);
}

static void add_strides(struct ct_str *a, const struct ct_node *n)
{
	add_ints(a, "strides", (const int[]){n->win.stride_h, n->win.stride_w}, 2);
}

static void add_pads(struct ct_str *a, const struct ct_node *n)
{
	const struct ct_window *w = &n->win;

	add_ints(a, "pads", (const int[]){w->pad_h, w->pad_w, w->pad_h, w->pad_w}, 4);
}

static void add_dilations(struct ct_str *a, const struct ct_node *n)
{
	add_ints(a, "dilations", (const int[]){n->win.dilation_h, n->win.dilation_w}, 2);
}

static void add_group(struct ct_str *a, const struct ct_node *n)
{
	add_int(a, "group", n->groups);
}

static void add_trans_b(struct ct_str *a, const struct ct_node *n)
{
	(void)n;
	add_int(a, "transB", 1);
}

static void add_count_include_pad(struct ct_str *a, const struct ct_node *n)
{
	(void)n;
	add_int(a, "count_include_pad", 0);
}

static void add_epsilon(struct ct_str *a, const struct ct_node *n)
{
	add_float(a, "epsilon", n->eps);
}

/* The attributes that struct ct_op_export names. */
static const struct {
	const char *name;
	void (*add)(struct ct_str *attributes, const struct ct_node *n);
} known_attributes[] = {
	{"kernel_shape", add_kernel_shape},
	{"strides", add_strides},
	{"pads", add_pads},
	{"dilations", add_dilations},
	{"group", add_group},
	{"transB", add_trans_b},
	{"count_include_pad", add_count_include_pad},
	{"epsilon", add_epsilon},
};

static enum ct_status add_known(struct ct_str *attributes, const struct ct_node *n, const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(known_attributes); i++) {
		if (strcmp(known_attributes[i].name, name) == 0) {
			known_attributes[i].add(attributes, n);
			return CT_OK;
		}
	}
	return CT_FAIL(CT_BUG, "the description of the operation %s for ONNX has the unknown attribute \"%s\"",
		       ct_op_name(n->op), name);
}

/* Appends the operation of node `id`: its inputs are its operands, its parameters and its buffers. */
static enum ct_status add_operation(struct writer *w, int id)
{
	const struct ct_node *n = ct_graph_node(w->m->graph, id);
	const struct ct_op_info *info = ct_op_info(n->op);
	const bool flat = ct__export_is_flat(n, &w->values[id]);
	char text[2][NAME_MAX_LEN], y[NAME_MAX_LEN], words[128];
	char user[sizeof(n->name) + 2] = "";
	const char *inputs[7] = {NULL}, *type, *name;
	struct ct_str a = {0};
	int n_inputs = 0;
	char *rest = NULL;

	for (int i = 0; i < info->n_inputs; i++) {
		snprintf(user, sizeof(user), "%s%s", n->name, i ? "/b" : "");
		inputs[n_inputs++] = operand(w, user, n->in[i], flat, text[i]);
	}
	for (int i = 0; i < 2; i++) {
		const int param = i ? n->bias : n->weight;

		if (param >= 0)
			inputs[n_inputs++] = ct_graph_param(w->m->graph, param)->name;
	}
	for (int i = 0; i < 2; i++) {
		const int buffer = i ? n->var : n->mean;

		if (buffer >= 0)
			inputs[n_inputs++] = ct_graph_buffer(w->m->graph, buffer)->name;
	}
	snprintf(words, sizeof(words), "%s", info->exported.onnx);
	type = strtok_r(words, " ", &rest);
	while ((name = strtok_r(NULL, " ", &rest))) {
		const enum ct_status st = add_known(&a, n, name);

		if (st < 0) {
			ct_str_release(&a);
			return st;
		}
	}
	add_node(w, type, name_of(w, id, y), inputs, &a);
	return CT_OK;
}

static enum ct_status add_graph(struct writer *w)
{
	const struct ct_description *d = w->m->description;
	const struct ct_shape *in = &d->model.input;
	const int loss = ct_graph_loss(w->m->graph), last = ct_graph_node(w->m->graph, loss)->in[0];
	char name[NAME_MAX_LEN];

	ct_pb_add_string(&w->graph, GRAPH_NAME, d->model.name);
	add_value_info(&w->graph, GRAPH_INPUT, INPUT, (const int[]){in->c, in->h, in->w}, 3);
	add_value_info(&w->graph, GRAPH_OUTPUT, w->output, &ct_graph_node(w->m->graph, last)->shape.c, 1);
	if (ct__export_normalizes(d)) {
		add_node(w, "Sub", "/centered", (const char *const[]){INPUT, MEAN, NULL}, NULL);
		add_node(w, "Div", NORMALIZED, (const char *const[]){"/centered", STD, NULL}, NULL);
	}
	for (int i = 1; i < loss; i++) {
		if (w->values[i].node == i)
			CT_TRY(add_operation(w, i));
	}
	if (!w->values[w->logits].flat)
		add_node(w, "Flatten", w->output, (const char *const[]){name_of(w, w->logits, name), NULL}, NULL);
	return CT_OK;
}

static void begin_tensor(struct ct_str *head, const char *name, int type, const int *dims, int ndim, size_t bytes)
{
	for (int i = 0; i < ndim; i++)
		ct_pb_add_int(head, TENSOR_DIMS, dims[i]);
	ct_pb_add_int(head, TENSOR_DATA_TYPE, type);
	ct_pb_add_string(head, TENSOR_NAME, name);
	ct_pb_begin_bytes(head, TENSOR_RAW_DATA, bytes);
}

/* Appends an initializer. If out is NULL, only adds its size to *total. */
static void add_tensor(struct ct_str *out, uint64_t *total, const char *name, int type, const int *dims, int ndim,
		       const void *data, size_t bytes)
{
	struct ct_str head = {0}, field = {0};

	begin_tensor(&head, name, type, dims, ndim, bytes);
	ct_pb_begin_bytes(&field, GRAPH_INITIALIZER, head.len + bytes);
	*total += field.len + head.len + bytes;
	if (out) {
		ct_str_add_bytes(out, ct_str_text(&field), field.len);
		ct_str_add_bytes(out, ct_str_text(&head), head.len);
		ct_str_add_bytes(out, data, bytes);
		out->failed = out->failed || field.failed || head.failed;
	}
	ct_str_release(&field);
	ct_str_release(&head);
}

/* The same initializers, in the same order, whether out is NULL or not. */
static void add_tensors(const struct writer *w, struct ct_str *out, uint64_t *total)
{
	static const int64_t image_shape[] = {0, -1, 1, 1}; /* 0: as in the input */
	const struct ct_description *d = w->m->description;
	const ct_graph *g = w->m->graph;
	const int channels[] = {1, d->model.input.c, 1, 1};

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		add_tensor(out, total, p->name, TYPE_FLOAT, p->dims, p->ndim, ct__export_param(w->m, i),
			   p->n * sizeof(float));
	}
	for (int i = 0; i < ct_graph_n_buffers(g); i++) {
		const struct ct_param *p = ct_graph_buffer(g, i);

		add_tensor(out, total, p->name, TYPE_FLOAT, p->dims, p->ndim, ct__export_buffer(w->m, i),
			   p->n * sizeof(float));
	}
	if (ct__export_normalizes(d)) {
		const size_t bytes = (size_t)d->model.input.c * sizeof(float);

		add_tensor(out, total, MEAN, TYPE_FLOAT, channels, 4, d->mean, bytes);
		add_tensor(out, total, STD, TYPE_FLOAT, channels, 4, d->std, bytes);
	}
	if (w->uses_image_shape)
		add_tensor(out, total, IMAGE_SHAPE, TYPE_INT64, (const int[]){4}, 1, image_shape, sizeof(image_shape));
}

static void add_property(struct ct_str *model, const char *key, const char *value)
{
	struct ct_str entry = {0};

	ct_pb_add_string(&entry, ENTRY_KEY, key);
	ct_pb_add_string(&entry, ENTRY_VALUE, value);
	ct_pb_add_message(model, MODEL_METADATA_PROPS, &entry);
}

static enum ct_status add_properties(const struct ct_description *d, struct ct_str *model)
{
	ct_json *classes = ct_json_array();
	struct ct_str text = {0};
	enum ct_status st;

	ct__export_describe_input(d, &text);
	add_property(model, "input", ct_str_text(&text));
	ct_str_clear(&text);
	for (int i = 0; i < d->n_classes; i++)
		ct_json_push_str(classes, d->classes[i]);
	st = ct_json_dump(classes, false, &text);
	add_property(model, "classes", ct_str_text(&text));
	ct_json_destroy(classes);
	ct_str_clear(&text);
	if (st == CT_OK)
		st = ct_description_write(d, &text);
	add_property(model, CT_DESCRIPTION_KEY, ct_str_text(&text));
	ct_str_release(&text);
	return st;
}

static enum ct_status add_model(struct writer *w, struct ct_str *out)
{
	struct ct_str opset = {0};
	uint64_t n_graph = w->graph.len;

	CT_TRY(ct_str_status(&w->graph));
	ct_pb_add_int(out, MODEL_IR_VERSION, IR_VERSION);
	ct_pb_add_string(out, MODEL_PRODUCER_NAME, "ctrain");
	ct_pb_add_string(out, MODEL_PRODUCER_VERSION, CTRAIN_VERSION);
	ct_pb_add_int(&opset, OPSET_VERSION, OPSET);
	ct_pb_add_message(out, MODEL_OPSET_IMPORT, &opset);
	CT_TRY(add_properties(w->m->description, out));
	add_tensors(w, NULL, &n_graph);
	if (n_graph > INT32_MAX - out->len - 16) {
		CT_FAIL(CT_UNSUPPORTED, "the model has %.2f GiB of weights, but an ONNX file may have at most 2 GiB",
			(double)n_graph / (1u << 30));
		return ct_error_hint("export to .safetensors or .py");
	}
	ct_pb_begin_bytes(out, MODEL_GRAPH, n_graph);
	ct_str_add_bytes(out, ct_str_text(&w->graph), w->graph.len);
	n_graph = 0;
	add_tensors(w, out, &n_graph);
	return ct_str_status(out);
}

enum ct_status ct__export_onnx(const struct ct_export_model *m, struct ct_str *out)
{
	struct writer w = {.m = m, .output = m->description->model.loss == CT_LOSS_MSE ? "prediction" : "logits"};
	enum ct_status st;

	CT_TRY_ALLOC(w.values = CT_NEW_ARRAY(struct ct_export_value, (size_t)ct_graph_n_nodes(m->graph)));
	ct__export_values(m->graph, w.values);
	w.logits = w.values[ct_graph_node(m->graph, ct_graph_loss(m->graph))->in[0]].node;
	st = add_graph(&w);
	if (st == CT_OK)
		st = add_model(&w, out);
	ct_str_release(&w.graph);
	ct_free(w.values);
	return st;
}
