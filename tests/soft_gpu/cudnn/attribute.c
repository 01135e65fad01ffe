#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

/* The attributes of each type of descriptor. */
struct rule {
	cudnnBackendDescriptorType_t kind;
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type;
	int max;        /* number of values; 1: exactly one */
	bool read_only; /* in cuDNN too */
};

#define RULE(kind, name, type, max, read_only) \
	{CUDNN_BACKEND_##kind##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, max, read_only}
#define SETTABLE(kind, name, type, max) RULE(kind, name, type, max, false)
#define READ_ONLY(kind, name, type, max) RULE(kind, name, type, max, true)
#define CONV_OP(kind, prefix, x, w, y)                                                     \
	SETTABLE(kind, prefix##_ALPHA, FLOAT, 1), SETTABLE(kind, prefix##_BETA, FLOAT, 1), \
		SETTABLE(kind, prefix##_CONV_DESC, BACKEND_DESCRIPTOR, 1),                 \
		SETTABLE(kind, prefix##_##x, BACKEND_DESCRIPTOR, 1),                       \
		SETTABLE(kind, prefix##_##w, BACKEND_DESCRIPTOR, 1),                       \
		SETTABLE(kind, prefix##_##y, BACKEND_DESCRIPTOR, 1)

static const struct rule rules[] = {
	SETTABLE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1),
	SETTABLE(TENSOR, TENSOR_DIMENSIONS, INT64, 16),
	SETTABLE(TENSOR, TENSOR_STRIDES, INT64, 16),
	SETTABLE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1),
	SETTABLE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1),
	SETTABLE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1),
	SETTABLE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1),
	SETTABLE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1),
	SETTABLE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1),
	SETTABLE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 16),
	SETTABLE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 16),
	SETTABLE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 16),
	SETTABLE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 16),
	CONV_OP(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y),
	CONV_OP(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY),
	CONV_OP(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY),
	SETTABLE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1),
	SETTABLE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1),
	SETTABLE(POINTWISE, POINTWISE_RELU_LOWER_CLIP, DOUBLE, 1),
	SETTABLE(POINTWISE, POINTWISE_RELU_UPPER_CLIP, DOUBLE, 1),
	SETTABLE(POINTWISE, POINTWISE_RELU_LOWER_CLIP_SLOPE, DOUBLE, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_DXDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_DYDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA1, FLOAT, 1),
	SETTABLE(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA2, FLOAT, 1),
	SETTABLE(OPERATION_GEN_STATS, OPERATION_GENSTATS_MODE, GENSTATS_MODE, 1),
	SETTABLE(OPERATION_GEN_STATS, OPERATION_GENSTATS_MATH_PREC, DATA_TYPE, 1),
	SETTABLE(OPERATION_GEN_STATS, OPERATION_GENSTATS_XDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_GEN_STATS, OPERATION_GENSTATS_SUMDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATION_GEN_STATS, OPERATION_GENSTATS_SQSUMDESC, BACKEND_DESCRIPTOR, 1),
	SETTABLE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, SOFT__MAX_OPS),
	SETTABLE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1),
	SETTABLE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1),
	SETTABLE(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1),
	READ_ONLY(ENGINEHEUR, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, 1),
	SETTABLE(ENGINE, ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1),
	SETTABLE(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1),
	SETTABLE(ENGINE, ENGINE_DEVICEPROP, BACKEND_DESCRIPTOR, 1),
	READ_ONLY(ENGINE, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, 1),
	READ_ONLY(ENGINE, ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, 1),
	SETTABLE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1),
	SETTABLE(ENGINECFG, ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, SOFT__MAX_KNOBS),
	SETTABLE(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1),
	SETTABLE(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1),
	SETTABLE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1),
	SETTABLE(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1),
	SETTABLE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1),
	READ_ONLY(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1),
	SETTABLE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, SOFT__MAX_TENSORS),
	SETTABLE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, SOFT__MAX_TENSORS),
	SETTABLE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1),
	SETTABLE(DEVICEPROP, DEVICEPROP_DEVICE_ID, INT32, 1),
	SETTABLE(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, 1 << 20),
};
enum { N_RULES = sizeof(rules) / sizeof(*rules) };

size_t soft__attribute_bytes(cudnnBackendAttributeType_t t)
{
	switch (t) {
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	default: /* enumerations, float, int32 */
		return 4;
	}
}

/* The rule, and its position among those of the kind. NULL: the attribute belongs to another type of descriptor. */
static const struct rule *find_rule(cudnnBackendDescriptorType_t kind, cudnnBackendAttributeName_t name, int *at)
{
	bool elsewhere = false, is_known = false;

	*at = 0;
	for (int i = 0; i < N_RULES; i++) {
		if (rules[i].kind == kind) {
			is_known = true;
			if (rules[i].name == name)
				return &rules[i];
			++*at;
		} else {
			elsewhere |= rules[i].name == name;
		}
	}
	if (!elsewhere || !is_known)
		soft_gpu_fail("cudnn: attribute %d of descriptors of type %d is not implemented in the stand-in",
			      (int)name, (int)kind);
	return NULL;
}

static cudnnStatus_t check_set(const struct soft__descriptor *d, const struct rule *r, cudnnBackendAttributeName_t name,
			       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	if (!r || d->is_final || !values)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %s", (int)name,
				    !r            ? "of another type of descriptor"
				    : d->is_final ? "the descriptor is finalized"
						  : "no values");
	if (r->read_only)
		return soft__refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d cannot be set", (int)name);
	if (type != r->type)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d has the type %d, not %d",
				    (int)name, (int)r->type, (int)type);
	if (n < 1 || (r->max == 1 && n != 1))
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %lld values", (int)name, (long long)n);
	if (n > r->max)
		soft_gpu_fail("cudnn: %lld values of attribute %d: the stand-in has place for %d", (long long)n,
			      (int)name, r->max);
	return CUDNN_STATUS_SUCCESS;
}

/* Keeps the descriptors, in place of the program's handles. */
static cudnnStatus_t keep_all(struct soft__value *v)
{
	struct soft__descriptor **all = v->data;
	cudnnBackendDescriptor_t *handles = v->data;

	v->was_final = true;
	for (int64_t i = 0; i < v->n; i++) {
		if (!handles[i])
			return soft__refuse(CUDNN_STATUS_BAD_PARAM, "nullptr == ptr");
		v->was_final &= soft__live(handles[i], "cudnnBackendSetAttribute")->is_final;
	}
	for (int64_t i = 0; i < v->n; i++) {
		all[i] = soft__live(handles[i], "cudnnBackendSetAttribute");
		atomic_fetch_add(&all[i]->refs, 1);
	}
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t soft__set(struct soft__descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			int64_t n, const void *values)
{
	struct soft__value v = {.type = type, .n = n}, *old;
	const struct rule *r;
	cudnnStatus_t st;
	int at;

	r = find_rule(d->kind, name, &at);
	st = check_set(d, r, name, type, n, values);
	if (st)
		return st;
	v.data = calloc((size_t)n + 1, soft__attribute_bytes(type)); /* ends with 0 */
	if (!v.data)
		return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
	memcpy(v.data, values, (size_t)n * soft__attribute_bytes(type));
	st = type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? keep_all(&v) : CUDNN_STATUS_SUCCESS;
	if (st) {
		free(v.data);
		return st;
	}
	old = &d->values[at];
	for (int64_t i = 0; old->data && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < old->n; i++)
		soft__descriptor_drop(((struct soft__descriptor **)old->data)[i]);
	free(old->data);
	*old = v;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static void put(const void *from, int64_t have, cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
		void *values)
{
	if (n)
		*n = have;
	if (values && room > 0)
		memcpy(values, from, (size_t)(room < have ? room : have) * soft__attribute_bytes(type));
}

static void put_notes(unsigned bits, cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *values)
{
	int notes[32], have = 0;

	for (int i = 0; i < 32; i++) {
		if (bits >> i & 1)
			notes[have++] = i;
	}
	put(notes, have, type, room, n, values);
}

cudnnStatus_t soft__get(struct soft__descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			int64_t room, int64_t *n, void *values)
{
	const struct soft__value *v;
	const struct rule *r;
	int at;

	r = find_rule(d->kind, name, &at);
	if (!d->is_final)
		return soft__refuse(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d: the descriptor is not finalized",
				    (int)name);
	if (!r)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: of another type of descriptor", (int)name);
	if (type != r->type)
		return soft__refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d has the type %d, not %d",
				    (int)name, (int)r->type, (int)type);
	v = &d->values[at];
	switch (name) {
	case CUDNN_ATTR_ENGINEHEUR_RESULTS:
		return soft__results(d, room, n, values);
	case CUDNN_ATTR_ENGINECFG_ENGINE:
		if (n)
			*n = 1;
		return room < 1 || !values ? CUDNN_STATUS_SUCCESS : soft__config_engine(d, *(void **)values);
	case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
		return soft__config_knobs(d, room, n, values);
	case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
		put(&d->knob.type, 1, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
		put(&d->knob.value, 1, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
		put_notes(d->engine.numerical, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
		put_notes(d->engine.behavior, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
		put(&d->engine.index, 1, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
		put(&d->engine.workspace_bytes, 1, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	default:
		if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
			soft_gpu_fail(
				"cudnn: reading the descriptor of attribute %d is not implemented in the stand-in",
				(int)name);
		put(v->data, v->data ? v->n : 0, type, room, n, values);
		return CUDNN_STATUS_SUCCESS;
	}
}

const struct soft__value *soft__find(const struct soft__descriptor *d, cudnnBackendAttributeName_t name)
{
	int at;

	return find_rule(d->kind, name, &at) && d->values[at].data ? &d->values[at] : NULL;
}

struct soft__descriptor *soft__ref(const struct soft__descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct soft__value *v = soft__find(d, name);

	return v ? *(struct soft__descriptor **)v->data : NULL;
}

int64_t soft__integer(const struct soft__descriptor *d, cudnnBackendAttributeName_t name, int64_t otherwise)
{
	const struct soft__value *v = soft__find(d, name);

	if (!v)
		return otherwise;
	switch (soft__attribute_bytes(v->type)) {
	case 8:
		return *(int64_t *)v->data;
	case 4:
		return *(int32_t *)v->data;
	default:
		return *(char *)v->data;
	}
}

double soft__real(const struct soft__descriptor *d, cudnnBackendAttributeName_t name, double otherwise)
{
	const struct soft__value *v = soft__find(d, name);

	if (!v)
		return otherwise;
	return v->type == CUDNN_TYPE_DOUBLE ? *(double *)v->data : (double)*(float *)v->data;
}
