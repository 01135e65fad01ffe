/* Incorrect and correct uses of tensors and of the functions that set and get attributes. */
#include "tests/soft_gpu/cudnn/misuse.h"

#define F CUDNN_DATA_FLOAT

/* ---- Tensors ---------------------------------------------------------------------------------------- */

/* A tensor without one of its attributes. */
static void tensor_without(struct builder *b, cudnnBackendAttributeName_t omitted)
{
	const int64_t dims[4] = {2, 8, 5, 5}, strides[4] = {200, 1, 40, 8};
	cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

	if (omitted != CUDNN_ATTR_TENSOR_DATA_TYPE)
		set_type(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, F);
	if (omitted != CUDNN_ATTR_TENSOR_DIMENSIONS)
		set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	if (omitted != CUDNN_ATTR_TENSOR_STRIDES)
		set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	if (omitted != CUDNN_ATTR_TENSOR_UNIQUE_ID)
		set_i64(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
	if (omitted != CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)
		set_i64(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
	finalize(b, t);
}

static void tensor_without_type(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_DATA_TYPE);
}

static void tensor_without_dims(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_DIMENSIONS);
}

static void tensor_without_strides(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_STRIDES);
}

static void tensor_without_uid(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_UNIQUE_ID);
}

static void tensor_without_alignment(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
}

static void tensor_complete(struct builder *b)
{
	tensor_without(b, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

static void tensor_dim_zero(struct builder *b)
{
	simple_tensor(b, 2, 0, 5, 5, F);
}

static void tensor_dim_negative(struct builder *b)
{
	simple_tensor(b, 2, 8, -1, 5, F);
}

static void tensor_stride_zero(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .strides = (int64_t[]){200, 0, 40, 8}});
}

static void tensor_stride_negative(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .strides = (int64_t[]){200, 1, -40, 8}});
}

static void tensor_overlapping(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .strides = (int64_t[]){100, 1, 40, 8}});
}

static void tensor_alignment_odd(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .alignment = 3});
}

static void tensor_alignment_too_small(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .alignment = 2});
}

static void tensor_alignment_negative(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .alignment = -16});
}

static void tensor_uid_negative(struct builder *b)
{
	make_tensor(b, &(struct tensor_spec){{2, 8, 5, 5}, F, .uid = -5});
}

static void tensor_bad_type(struct builder *b)
{
	simple_tensor(b, 2, 8, 5, 5, (cudnnDataType_t)77);
}

static void tensor_counts_differ(struct builder *b)
{
	const int64_t dims[4] = {2, 8, 5, 5}, strides[4] = {200, 1, 40, 8};
	cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

	set_type(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, F);
	set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, strides);
	set_i64(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
	set_i64(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
	finalize(b, t);
}

/* ---- Setting and getting ---------------------------------------------------------------------------- */

static void set_wrong_type(struct builder *b)
{
	const int32_t uid = 1;

	set(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT32, 1, &uid);
}

static void set_count_zero(struct builder *b)
{
	const int64_t uid = 1;

	set(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 0, &uid);
}

static void set_count_two(struct builder *b)
{
	const int64_t uid[2] = {1, 2};

	set(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, uid);
}

static void set_count_nine(struct builder *b)
{
	const int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

	set(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, dims);
}

static void set_null_values(struct builder *b)
{
	set(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL);
}

static void set_null_descriptor(struct builder *b)
{
	set_i64(b, NULL, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
}

static void set_attribute_of_another_type(struct builder *b)
{
	set_i64(b, make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
}

static void set_after_finalize(struct builder *b)
{
	set_i64(b, simple_tensor(b, 2, 8, 5, 5, F), CUDNN_ATTR_TENSOR_UNIQUE_ID, 2);
}

static void set_read_only(struct builder *b)
{
	set_i64(b, make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 2);
}

static void finalize_twice(struct builder *b)
{
	finalize(b, simple_tensor(b, 2, 8, 5, 5, F));
}

static void finalize_null(struct builder *b)
{
	finalize(b, NULL);
}

static void create_bad_type(struct builder *b)
{
	make(b, (cudnnBackendDescriptorType_t)999);
}

static void create_null(struct builder *b)
{
	b->status = b->lib->create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, NULL);
}

static void get_i64(struct builder *b, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		    cudnnBackendAttributeType_t type)
{
	int64_t n, value[16];

	if (!b->status)
		b->status = b->lib->get(d, name, type, 1, &n, value);
}

static void get_before_finalize(struct builder *b)
{
	cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

	set_i64(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1);
	get_i64(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64);
}

static void get_wrong_type(struct builder *b)
{
	get_i64(b, simple_tensor(b, 2, 8, 5, 5, F), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_DOUBLE);
}

static void get_attribute_of_another_type(struct builder *b)
{
	get_i64(b, simple_tensor(b, 2, 8, 5, 5, F), CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64);
}

static void get_null_values(struct builder *b)
{
	cudnnBackendDescriptor_t t = simple_tensor(b, 2, 8, 5, 5, F);
	int64_t n;

	if (!b->status)
		b->status = b->lib->get(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, &n, NULL);
}

static void get_fewer(struct builder *b)
{
	cudnnBackendDescriptor_t t = simple_tensor(b, 2, 8, 5, 5, F);
	int64_t n, dims[4];

	if (!b->status)
		b->status = b->lib->get(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, &n, dims);
}

static const struct misuse all[] = {
	FAIL(tensor_without_type, "has no type"),
	STATUS(tensor_without_dims, BAD_PARAM),
	STATUS(tensor_without_strides, BAD_PARAM),
	FAIL(tensor_without_uid, "has no unique id"),
	STATUS(tensor_without_alignment, BAD_PARAM),
	STATUS(tensor_complete, SUCCESS),
	FAIL(tensor_dim_zero, "tensor 1 is empty"),
	STATUS(tensor_dim_negative, BAD_PARAM),
	FAIL(tensor_stride_zero, "share memory"),
	STATUS(tensor_stride_negative, BAD_PARAM),
	FAIL(tensor_overlapping, "share memory"),
	STATUS(tensor_alignment_odd, BAD_PARAM),
	STATUS(tensor_alignment_too_small, BAD_PARAM),
	STATUS(tensor_alignment_negative, BAD_PARAM),
	STATUS(tensor_uid_negative, SUCCESS),
	FAIL(tensor_bad_type, "values of type 77"),
	STATUS(tensor_counts_differ, BAD_PARAM),
	STATUS(set_wrong_type, BAD_PARAM_ATTRIBUTE_TYPE),
	STATUS(set_count_zero, BAD_PARAM),
	STATUS(set_count_two, BAD_PARAM),
	STATUS(set_count_nine, SUCCESS),
	STATUS(set_null_values, BAD_PARAM),
	STATUS(set_null_descriptor, BAD_PARAM_NULL_POINTER),
	STATUS(set_attribute_of_another_type, BAD_PARAM),
	STATUS(set_after_finalize, BAD_PARAM),
	STATUS(set_read_only, NOT_SUPPORTED),
	STATUS(finalize_twice, BAD_PARAM),
	STATUS(finalize_null, BAD_PARAM_NULL_POINTER),
	STATUS(create_bad_type, INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
	FAIL(create_null, "no place for the descriptor"),
	STATUS(get_before_finalize, NOT_INITIALIZED),
	STATUS(get_wrong_type, BAD_PARAM_ATTRIBUTE_TYPE),
	STATUS(get_attribute_of_another_type, BAD_PARAM),
	STATUS(get_null_values, SUCCESS),
	STATUS(get_fewer, SUCCESS),
};
const struct misuses misused_descriptors = {all, sizeof(all) / sizeof(*all)};
