/* Implements functions of oneDNN 3.x with oneDNN 2.x, for shim.c. Each function fills an operation descriptor and
 * creates a primitive descriptor from it. Include dnnl.h first: otherwise this header is empty. */
#ifndef CT_NN_ONEDNN_DNNL_V2_H
#define CT_NN_ONEDNN_DNNL_V2_H
#ifdef DNNL_VERSION_MAJOR

typedef dnnl_primitive_desc_t *pd_out;
typedef const_dnnl_primitive_desc_t pd_hint;
typedef const_dnnl_primitive_attr_t attr_arg;
typedef const dnnl_dim_t *dims_arg;

#define APPEND_RELU(ops, slope) dnnl_post_ops_append_eltwise((ops), 1.0f, dnnl_eltwise_relu, (slope), 0.0f)
#define APPEND_SUM(ops) dnnl_post_ops_append_sum((ops), 1.0f)
#define INIT(call)                               \
	do {                                     \
		dnnl_status_t init_st_ = (call); \
		if (init_st_ != dnnl_success)    \
			return init_st_;         \
	} while (0)

static dnnl_status_t dnnl_convolution_forward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_prop_kind_t prop,
								    dnnl_alg_kind_t alg, md_arg src, md_arg weights,
								    md_arg bias, md_arg dst, dims_arg stride,
								    dims_arg gaps, dims_arg pad_l, dims_arg pad_r,
								    attr_arg attr)
{
	dnnl_convolution_desc_t d;

	INIT(dnnl_dilated_convolution_forward_desc_init(&d, prop, alg, src, weights, bias, dst, stride, gaps, pad_l,
							pad_r));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
	pd_out pd, dnnl_engine_t e, dnnl_alg_kind_t alg, md_arg diff_src, md_arg weights, md_arg diff_dst,
	dims_arg stride, dims_arg gaps, dims_arg pad_l, dims_arg pad_r, pd_hint hint, attr_arg attr)
{
	dnnl_convolution_desc_t d;

	INIT(dnnl_dilated_convolution_backward_data_desc_init(&d, alg, diff_src, weights, diff_dst, stride, gaps, pad_l,
							      pad_r));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

static dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
	pd_out pd, dnnl_engine_t e, dnnl_alg_kind_t alg, md_arg src, md_arg diff_weights, md_arg diff_bias,
	md_arg diff_dst, dims_arg stride, dims_arg gaps, dims_arg pad_l, dims_arg pad_r, pd_hint hint, attr_arg attr)
{
	dnnl_convolution_desc_t d;

	INIT(dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, src, diff_weights, diff_bias, diff_dst,
								 stride, gaps, pad_l, pad_r));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

static dnnl_status_t dnnl_inner_product_forward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_prop_kind_t prop,
								      md_arg src, md_arg weights, md_arg bias,
								      md_arg dst, attr_arg attr)
{
	dnnl_inner_product_desc_t d;

	INIT(dnnl_inner_product_forward_desc_init(&d, prop, src, weights, bias, dst));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static dnnl_status_t dnnl_inner_product_backward_data_primitive_desc_create(pd_out pd, dnnl_engine_t e, md_arg diff_src,
									    md_arg weights, md_arg diff_dst,
									    pd_hint hint, attr_arg attr)
{
	dnnl_inner_product_desc_t d;

	INIT(dnnl_inner_product_backward_data_desc_init(&d, diff_src, weights, diff_dst));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

static dnnl_status_t dnnl_inner_product_backward_weights_primitive_desc_create(pd_out pd, dnnl_engine_t e, md_arg src,
									       md_arg diff_weights, md_arg diff_bias,
									       md_arg diff_dst, pd_hint hint,
									       attr_arg attr)
{
	dnnl_inner_product_desc_t d;

	INIT(dnnl_inner_product_backward_weights_desc_init(&d, src, diff_weights, diff_bias, diff_dst));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

/* In 2.x, batch normalization and element-wise operations have a single descriptor for source and result. */
static dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(pd_out pd, dnnl_engine_t e,
									    dnnl_prop_kind_t prop, md_arg src,
									    md_arg dst, float eps, unsigned flags,
									    attr_arg attr)
{
	dnnl_batch_normalization_desc_t d;

	(void)dst;
	INIT(dnnl_batch_normalization_forward_desc_init(&d, prop, src, eps, flags));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(pd_out pd, dnnl_engine_t e,
									     dnnl_prop_kind_t prop, md_arg diff_src,
									     md_arg diff_dst, md_arg src, float eps,
									     unsigned flags, pd_hint hint,
									     attr_arg attr)
{
	dnnl_batch_normalization_desc_t d;

	(void)diff_dst;
	INIT(dnnl_batch_normalization_backward_desc_init(&d, prop, diff_src, src, eps, flags));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

static dnnl_status_t dnnl_eltwise_forward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_prop_kind_t prop,
								dnnl_alg_kind_t alg, md_arg src, md_arg dst,
								float alpha, float beta, attr_arg attr)
{
	dnnl_eltwise_desc_t d;

	(void)dst;
	INIT(dnnl_eltwise_forward_desc_init(&d, prop, alg, src, alpha, beta));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static dnnl_status_t dnnl_eltwise_backward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_alg_kind_t alg,
								 md_arg diff_src, md_arg diff_dst, md_arg data,
								 float alpha, float beta, pd_hint hint, attr_arg attr)
{
	dnnl_eltwise_desc_t d;

	(void)diff_dst;
	INIT(dnnl_eltwise_backward_desc_init(&d, alg, diff_src, data, alpha, beta));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

/* Only version 2 of the pooling descriptor supports dilation, and only version 1 has fast implementations. */
static dnnl_status_t dnnl_pooling_forward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_prop_kind_t prop,
								dnnl_alg_kind_t alg, md_arg src, md_arg dst,
								dims_arg stride, dims_arg kernel, dims_arg gaps,
								dims_arg pad_l, dims_arg pad_r, attr_arg attr)
{
	if (gaps[0] == 0 && gaps[1] == 0) {
		dnnl_pooling_desc_t d;

		INIT(dnnl_pooling_forward_desc_init(&d, prop, alg, src, dst, stride, kernel, pad_l, pad_r));
		return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
	}
	dnnl_pooling_v2_desc_t d;
	INIT(dnnl_pooling_v2_forward_desc_init(&d, prop, alg, src, dst, stride, kernel, gaps, pad_l, pad_r));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

static dnnl_status_t dnnl_pooling_backward_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_alg_kind_t alg,
								 md_arg diff_src, md_arg diff_dst, dims_arg stride,
								 dims_arg kernel, dims_arg gaps, dims_arg pad_l,
								 dims_arg pad_r, pd_hint hint, attr_arg attr)
{
	if (gaps[0] == 0 && gaps[1] == 0) {
		dnnl_pooling_desc_t d;

		INIT(dnnl_pooling_backward_desc_init(&d, alg, diff_src, diff_dst, stride, kernel, pad_l, pad_r));
		return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
	}
	dnnl_pooling_v2_desc_t d;
	INIT(dnnl_pooling_v2_backward_desc_init(&d, alg, diff_src, diff_dst, stride, kernel, gaps, pad_l, pad_r));
	return dnnl_primitive_desc_create(pd, &d, attr, e, hint);
}

static dnnl_status_t dnnl_binary_primitive_desc_create(pd_out pd, dnnl_engine_t e, dnnl_alg_kind_t alg, md_arg src0,
						       md_arg src1, md_arg dst, attr_arg attr)
{
	dnnl_binary_desc_t d;

	INIT(dnnl_binary_desc_init(&d, alg, src0, src1, dst));
	return dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}

#endif
#endif
