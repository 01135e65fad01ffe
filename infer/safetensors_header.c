/* The header comes from an untrusted file. Each tensor is checked alone: name, type, shape, and that its data is within
 * the file and has exactly the size of the shape. Products of dimensions are computed with overflow checks and with
 * zeros replaced by ones, so that no product that other code computes can overflow, either. Then the tensors are sorted
 * by the position of their data, and must cover the data without gaps and overlaps, so no byte of the data is unused or
 * has two meanings. The names are borrowed from the parsed JSON, which therefore lives as long as the header. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "infer/safetensors_impl.h"

#define METADATA "__metadata__"

enum ct_status ct__st_fail(enum ct_status status, const char *where, const char *name, const char *fmt, ...)
{
	struct ct_str shown = {0}, text = {0};
	va_list ap;

	/* Names come from the file and may contain any bytes. */
	ct_str_add_escaped(&shown, name, strlen(name), 100);
	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	CT_FAIL(status, "%s: tensor \"%s\" %s", where, ct_str_text(&shown), ct_str_text(&text));
	ct_str_release(&text);
	ct_str_release(&shown);
	return status;
}

/* Returns element i of an array of integers >= 0. */
static bool natural_at(const ct_json *array, size_t i, int64_t *out)
{
	return ct_json_as_i64(ct_json_at(array, i), out) && *out >= 0;
}

static enum ct_status parse_shape(const ct_json *shape, const char *where, struct ct_st_tensor *t)
{
	size_t ndim = ct_json_len(shape);
	uint64_t bytes = t->dtype->bytes;
	bool empty = false;

	if (!shape || !ct_json_is_array(shape))
		return ct__st_fail(CT_DATA, where, t->desc.name, "has no shape");
	if (ndim > CT_TENSOR_MAX_DIMS)
		return ct__st_fail(CT_DATA, where, t->desc.name, "has %zu dimensions; the limit is %d", ndim,
				   CT_TENSOR_MAX_DIMS);
	t->desc.ndim = (int)ndim;
	for (size_t i = 0; i < ndim; i++) {
		if (!natural_at(shape, i, &t->desc.dims[i]))
			return ct__st_fail(CT_DATA, where, t->desc.name, "has a dimension that is not an integer >= 0");
		empty |= t->desc.dims[i] == 0;
	}
	/* Overflow is an error even if another dimension is 0, so that no product of dimensions can overflow later. */
	for (size_t i = 0; i < ndim; i++) {
		uint64_t d = t->desc.dims[i] ? (uint64_t)t->desc.dims[i] : 1;

		if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > INT64_MAX)
			return ct__st_fail(CT_DATA, where, t->desc.name, "is larger than any file");
	}
	if (empty)
		bytes = 0;
	if (bytes != t->end - t->begin)
		return ct__st_fail(CT_DATA, where, t->desc.name, "has %llu bytes of data, but its shape needs %llu",
				   (unsigned long long)(t->end - t->begin), (unsigned long long)bytes);
	return CT_OK;
}

static enum ct_status parse_tensor(const char *name, const ct_json *j, uint64_t data_bytes, const char *where,
				   struct ct_st_tensor *t)
{
	const ct_json *offsets;
	const char *dtype;
	int64_t begin, end;

	t->desc.name = name;
	if (name[0] == '\0' || strlen(name) > CT_ST_MAX_NAME)
		return ct__st_fail(CT_DATA, where, name, "has a name that is not 1 to %d bytes long", CT_ST_MAX_NAME);
	if (!ct_json_is_object(j))
		return ct__st_fail(CT_DATA, where, name, "is not described by an object");
	dtype = ct_json_as_str(ct_json_get(j, "dtype"));
	if (!dtype)
		return ct__st_fail(CT_DATA, where, name, "has no dtype");
	t->dtype = ct__st_dtype_find(dtype);
	if (!t->dtype)
		return ct__st_fail(CT_DATA, where, name, "has an unknown element type");
	offsets = ct_json_get(j, "data_offsets");
	if (!ct_json_is_array(offsets) || ct_json_len(offsets) != 2 || !natural_at(offsets, 0, &begin) ||
	    !natural_at(offsets, 1, &end))
		return ct__st_fail(CT_DATA, where, name, "has no data_offsets of two integers >= 0");
	if (begin > end || (uint64_t)end > data_bytes)
		return ct__st_fail(CT_DATA, where, name, "is stored at bytes %lld to %lld of %llu bytes of data",
				   (long long)begin, (long long)end, (unsigned long long)data_bytes);
	t->begin = (uint64_t)begin;
	t->end = (uint64_t)end;
	return parse_shape(ct_json_get(j, "shape"), where, t);
}

static enum ct_status check_metadata(const ct_json *j, const char *where)
{
	const ct_json *value;
	void *cursor = NULL;

	if (!ct_json_is_object(j))
		return CT_FAIL(CT_DATA, "%s: " METADATA " of the header is not an object", where);
	while (ct_json_next(j, &cursor, &value)) {
		if (!ct_json_as_str(value))
			return CT_FAIL(CT_DATA, "%s: " METADATA " of the header contains a value that is not a string",
				       where);
	}
	return CT_OK;
}

static int by_data(const void *a, const void *b)
{
	const struct ct_st_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return strcmp(x->desc.name, y->desc.name);
}

static int by_name(const void *a, const void *b, void *tensors)
{
	const struct ct_st_tensor *t = tensors;

	return strcmp(t[*(const int *)a].desc.name, t[*(const int *)b].desc.name);
}

/* The tensors, in the order of their data, must cover each byte of the data exactly once. */
static enum ct_status check_cover(const struct ct_st_header *h, uint64_t data_bytes, const char *where)
{
	uint64_t at = 0;

	for (int i = 0; i < h->n; i++) {
		const struct ct_st_tensor *t = &h->tensors[i];

		if (t->begin < at)
			return ct__st_fail(CT_DATA, where, t->desc.name, "overlaps the tensor before it");
		if (t->begin > at)
			return ct__st_fail(CT_DATA, where, t->desc.name, "starts %llu bytes after the data before it",
					   (unsigned long long)(t->begin - at));
		at = t->end;
	}
	if (at != data_bytes)
		return CT_FAIL(CT_DATA, "%s: %llu bytes after the last tensor", where,
			       (unsigned long long)(data_bytes - at));
	return CT_OK;
}

static enum ct_status parse_members(struct ct_st_header *h, uint64_t data_bytes, const char *where)
{
	const ct_json *value;
	void *cursor = NULL;
	const char *name;

	while ((name = ct_json_next(h->json, &cursor, &value))) {
		if (strcmp(name, METADATA) == 0) {
			CT_TRY(check_metadata(value, where));
			continue;
		}
		CT_TRY(parse_tensor(name, value, data_bytes, where, &h->tensors[h->n]));
		h->n++;
	}
	if (h->n > 0)
		qsort(h->tensors, (size_t)h->n, sizeof(*h->tensors), by_data);
	for (int i = 0; i < h->n; i++)
		h->by_name[i] = i;
	if (h->n > 0)
		qsort_r(h->by_name, (size_t)h->n, sizeof(*h->by_name), by_name, h->tensors);
	return check_cover(h, data_bytes, where);
}

enum ct_status ct__st_header_parse(const char *text, size_t len, uint64_t data_bytes, const char *where,
				   struct ct_st_header *out)
{
	struct ct_st_header h = {0};
	enum ct_status st;
	size_t members;

	if (len == 0 || text[0] != '{')
		return CT_FAIL(CT_DATA, "%s is not a safetensors file: its header is not a JSON object", where);
	CT_TRY(ct_json_parse(text, len, where, &h.json));
	members = ct_json_len(h.json);
	if (members > CT_ST_MAX_TENSORS) {
		st = CT_FAIL(CT_DATA, "%s contains %zu tensors; the limit is %d", where, members, CT_ST_MAX_TENSORS);
		goto fail;
	}
	h.tensors = CT_NEW_ARRAY(struct ct_st_tensor, members);
	h.by_name = CT_NEW_ARRAY(int, members);
	if (!h.tensors || !h.by_name) {
		st = CT_NOMEM;
		goto fail;
	}
	CT_TRY_GOTO(parse_members(&h, data_bytes, where), st, fail);
	*out = h;
	return CT_OK;

fail:
	ct__st_header_release(&h);
	return st;
}

void ct__st_header_release(struct ct_st_header *h)
{
	ct_free(h->by_name);
	ct_free(h->tensors);
	ct_json_destroy(h->json);
	*h = (struct ct_st_header){0};
}

enum ct_status ct__st_header_len(const uint8_t first[8], uint64_t file_bytes, const char *where, size_t *len)
{
	uint64_t n;

	memcpy(&n, first, sizeof(n));
	if (n > CT_ST_MAX_HEADER)
		return CT_FAIL(
			CT_DATA,
			"%s is not a safetensors file: the size of its header is %llu bytes, which exceeds the limit of %llu",
			where, (unsigned long long)n, (unsigned long long)CT_ST_MAX_HEADER);
	if (n > file_bytes - 8)
		return CT_FAIL(CT_DATA, "%s is truncated: its header of %llu bytes extends beyond the end of the file",
			       where, (unsigned long long)n);
	*len = (size_t)n;
	return CT_OK;
}
