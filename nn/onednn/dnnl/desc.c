/* Tensor descriptors. A context has only one copy of each, so equal descriptors are the same pointer. Every descriptor
 * that oneDNN returns must therefore pass through ct__dnnl_intern. A program has few different ones, so a list is
 * enough. The lock is needed because another thread may export parameters. */
#include "nn/onednn/dnnl/shim.h"

#include <dnnl.h>
#include <stdio.h>

#include "base/mem.h"
#include "nn/onednn/dnnl/dnnl_impl.h"

static void destroy_desc(ct_dnnl_desc *d)
{
#if DNNL_VERSION_MAJOR >= 3
	if (d->md)
		dnnl_memory_desc_destroy(d->md);
#endif
	ct_free(d);
}

void ct__dnnl_descs_free(ct_dnnl *c)
{
	while (c->descs) {
		ct_dnnl_desc *d = c->descs;

		c->descs = d->next;
		destroy_desc(d);
	}
}

static enum ct_status intern(ct_dnnl *c, md_arg md, dnnl_data_type_t type, int ndims, const dnnl_dim_t *dims,
			     const ct_dnnl_desc **out)
{
	dnnl_dims_t strides;
	ct_dnnl_desc *d;

	for (d = c->descs; d; d = d->next) {
		if (dnnl_memory_desc_equal(MD(d), md)) {
			*out = d;
			return CT_OK;
		}
	}
	CT_ASSERT(ndims <= CT_DNNL_MAX_DIMS);
	CT_TRY_ALLOC(d = CT_NEW(ct_dnnl_desc));
	d->ndims = ndims;
	d->type = type == dnnl_bf16 ? CT_DNNL_BF16 : CT_DNNL_F32;
	for (int i = ndims - 1; i >= 0; i--) {
		d->dims[i] = (int)dims[i];
		strides[i] = i == ndims - 1 ? 1 : strides[i + 1] * dims[i + 1];
	}
#if DNNL_VERSION_MAJOR < 3
	dnnl_memory_desc_t plain;
	dnnl_status_t st = dnnl_memory_desc_init_by_strides(&plain, ndims, dims, type, strides);
	d->md = *md;
	d->plain = st == dnnl_success && dnnl_memory_desc_equal(&plain, md);
#else
	dnnl_memory_desc_t plain = NULL;
	dnnl_status_t st = dnnl_memory_desc_create_with_strides(&plain, ndims, dims, type, strides);
	d->plain = st == dnnl_success && dnnl_memory_desc_equal(plain, md);
	if (plain)
		dnnl_memory_desc_destroy(plain);
	if (st == dnnl_success)
		st = dnnl_memory_desc_clone(&d->md, md);
#endif
	if (st != dnnl_success) {
		destroy_desc(d);
		return ct__dnnl_check(st, "tensor descriptor");
	}
	d->next = c->descs;
	c->descs = d;
	*out = d;
	return CT_OK;
}

enum ct_status ct__dnnl_intern(ct_dnnl *c, md_arg md, dnnl_data_type_t type, int ndims, const dnnl_dim_t *dims,
			       const ct_dnnl_desc **out)
{
	pthread_mutex_lock(&c->lock);
	enum ct_status st = intern(c, md, type, ndims, dims, out);
	pthread_mutex_unlock(&c->lock);
	return st;
}

static enum ct_status make_desc(ct_dnnl *c, enum ct_dnnl_type of, int ndims, const int *dims, dnnl_format_tag_t tag,
				const ct_dnnl_desc **out)
{
	const dnnl_data_type_t type = of == CT_DNNL_BF16 ? dnnl_bf16 : dnnl_f32;
	dnnl_dims_t d;

	CT_ASSERT(ndims >= 1 && ndims <= CT_DNNL_MAX_DIMS);
	for (int i = 0; i < ndims; i++)
		d[i] = dims[i];
#if DNNL_VERSION_MAJOR < 3
	dnnl_memory_desc_t md;
	DNNL_TRY(dnnl_memory_desc_init_by_tag(&md, ndims, d, type, tag), "tensor descriptor");
	return ct__dnnl_intern(c, &md, type, ndims, d, out);
#else
	dnnl_memory_desc_t md;
	DNNL_TRY(dnnl_memory_desc_create_with_tag(&md, ndims, d, type, tag), "tensor descriptor");
	enum ct_status st = ct__dnnl_intern(c, md, type, ndims, d, out);
	dnnl_memory_desc_destroy(md);
	return st;
#endif
}

enum ct_status ct__dnnl_plain_of(ct_dnnl *c, enum ct_dnnl_type type, int ndims, const int *dims,
				 const ct_dnnl_desc **out)
{
	static const dnnl_format_tag_t tags[CT_DNNL_MAX_DIMS + 1] = {
		dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};

	CT_ASSERT(ndims >= 1 && ndims <= CT_DNNL_MAX_DIMS);
	return make_desc(c, type, ndims, dims, tags[ndims], out);
}

enum ct_status ct__dnnl_plain(ct_dnnl *c, int ndims, const int *dims, const ct_dnnl_desc **out)
{
	return ct__dnnl_plain_of(c, CT_DNNL_F32, ndims, dims, out);
}

enum ct_status ct__dnnl_any_of(ct_dnnl *c, enum ct_dnnl_type type, int ndims, const int *dims, const ct_dnnl_desc **out)
{
	return make_desc(c, type, ndims, dims, dnnl_format_tag_any, out);
}

enum ct_status ct__dnnl_any(ct_dnnl *c, int ndims, const int *dims, const ct_dnnl_desc **out)
{
	return make_desc(c, CT_DNNL_F32, ndims, dims, dnnl_format_tag_any, out);
}

enum ct_status ct__dnnl_blocked_of(ct_dnnl *c, enum ct_dnnl_type type, const int dims[4], int block,
				   const ct_dnnl_desc **out)
{
	CT_ASSERT(block == 8 || block == 16);
	return make_desc(c, type, 4, dims, block == 8 ? dnnl_aBcd8b : dnnl_aBcd16b, out);
}

enum ct_status ct__dnnl_nhwc_of(ct_dnnl *c, enum ct_dnnl_type type, const int dims[4], const ct_dnnl_desc **out)
{
	return make_desc(c, type, 4, dims, dims[2] * dims[3] == 1 ? dnnl_abcd : dnnl_acdb, out);
}

enum ct_status ct__dnnl_blocked_weights(ct_dnnl *c, const int dims[4], int block, const ct_dnnl_desc **out)
{
	CT_ASSERT(block == 8 || block == 16);
	return make_desc(c, CT_DNNL_F32, 4, dims, block == 8 ? dnnl_ABcd8b8a : dnnl_ABcd16b16a, out);
}

enum ct_status ct__dnnl_rsck_weights(ct_dnnl *c, const int dims[4], const ct_dnnl_desc **out)
{
	return make_desc(c, CT_DNNL_F32, 4, dims, dnnl_hwio, out);
}

enum ct_dnnl_type ct__dnnl_desc_type(const ct_dnnl_desc *d)
{
	return d->type;
}

size_t ct__dnnl_type_bytes(enum ct_dnnl_type type)
{
	return type == CT_DNNL_BF16 ? 2 : sizeof(float);
}

int ct__dnnl_desc_ndims(const ct_dnnl_desc *d)
{
	return d->ndims;
}

const int *ct__dnnl_desc_dims(const ct_dnnl_desc *d)
{
	return d->dims;
}

bool ct__dnnl_desc_is_plain(const ct_dnnl_desc *d)
{
	return d->plain;
}

size_t ct__dnnl_desc_bytes(const ct_dnnl_desc *d)
{
	return dnnl_memory_desc_get_size(MD(d));
}

void ct__dnnl_desc_text(const ct_dnnl_desc *d, char *text, size_t len)
{
	dnnl_dim_t zero[CT_DNNL_MAX_DIMS] = {0};
	const dnnl_dim_t *strides = zero, *blocks = zero, *of_dim = zero;
	int n_blocks = 0;
	size_t used = 0;

#if DNNL_VERSION_MAJOR < 3
	if (d->md.format_kind == dnnl_blocked) {
		strides = d->md.format_desc.blocking.strides;
		n_blocks = d->md.format_desc.blocking.inner_nblks;
		blocks = d->md.format_desc.blocking.inner_blks;
		of_dim = d->md.format_desc.blocking.inner_idxs;
	}
#else
	const dnnl_dims_t *out_strides, *out_blocks, *out_dims;
	if (dnnl_memory_desc_query(d->md, dnnl_query_inner_nblks_s32, &n_blocks) == dnnl_success &&
	    dnnl_memory_desc_query(d->md, dnnl_query_strides, &out_strides) == dnnl_success &&
	    dnnl_memory_desc_query(d->md, dnnl_query_inner_blks, &out_blocks) == dnnl_success &&
	    dnnl_memory_desc_query(d->md, dnnl_query_inner_idxs, &out_dims) == dnnl_success) {
		strides = *out_strides;
		blocks = *out_blocks;
		of_dim = *out_dims;
	}
#endif
	text[0] = '\0';
	for (int i = 0; i < d->ndims + n_blocks && used < len; i++) {
		if (i < d->ndims)
			used += (size_t)snprintf(text + used, len - used, "%s%lld", i ? "," : "strides ",
						 (long long)strides[i]);
		else
			used += (size_t)snprintf(text + used, len - used, " %lldd%lld", (long long)blocks[i - d->ndims],
						 (long long)of_dim[i - d->ndims]);
	}
}
