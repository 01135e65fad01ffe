/* Definitions that shim.c and desc.c share. Include dnnl.h first: otherwise this header is empty. */
#ifndef CT_NN_ONEDNN_DNNL_DNNL_IMPL_H
#define CT_NN_ONEDNN_DNNL_DNNL_IMPL_H
#ifdef DNNL_VERSION_MAJOR

#include <pthread.h>

#include "nn/onednn/dnnl/shim.h"

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *md_arg;
#define MD(desc) ((desc) ? &(desc)->md : NULL)
#else
typedef const_dnnl_memory_desc_t md_arg;
#define MD(desc) ((desc) ? (desc)->md : NULL)
#endif

struct ct_dnnl_desc {
	dnnl_memory_desc_t md;
	enum ct_dnnl_type type;
	int ndims, dims[CT_DNNL_MAX_DIMS];
	bool plain;
	ct_dnnl_desc *next;
};

struct ct_dnnl {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	/* With each of these attributes, the caller provides the scratchpad. [1]: a ReLU is applied to the result; [2]:
	 * the result is added to dst; [3]: the result is added to dst, and then a ReLU is applied. */
	dnnl_primitive_attr_t attrs[4];
	/* Protects the caches and the creation of their primitives on first use, because a thread that exports
	 * parameters uses them at the same time as the thread that computes. */
	pthread_mutex_t lock;
	ct_dnnl_desc *descs;
	ct_dnnl_prim *prims;
};

enum ct_status ct__dnnl_check(dnnl_status_t st, const char *what) CT_MUST_CHECK;
#define DNNL_TRY(call, what) CT_TRY(ct__dnnl_check((call), (what)))

/* Gets the desc that equals md. Adds a new one if there is none. */
enum ct_status ct__dnnl_intern(ct_dnnl *c, md_arg md, dnnl_data_type_t type, int ndims, const dnnl_dim_t *dims,
			       const ct_dnnl_desc **out) CT_MUST_CHECK;
void ct__dnnl_descs_free(ct_dnnl *c);

#endif
#endif
