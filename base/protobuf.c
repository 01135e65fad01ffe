/* A field is a tag, which consists of the field number and the wire type, and a value whose length the wire type
 * defines. Nested messages are written with their length in front of them, so they have to be complete first; the
 * length of a message that the caller appends itself is passed to ct_pb_begin_bytes. Integers are varints of seven bits
 * per byte, the lowest first. */
#include "base/protobuf.h"

#include <string.h>

enum wire_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static void add_varint(struct ct_str *m, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;

	do {
		bytes[n] = (uint8_t)(v & 127);
		v >>= 7;
		bytes[n++] |= v ? 128 : 0;
	} while (v);
	ct_str_add_bytes(m, bytes, n);
}

static void add_tag(struct ct_str *m, int field, enum wire_type type)
{
	add_varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

void ct_pb_add_int(struct ct_str *m, int field, int64_t v)
{
	add_tag(m, field, VARINT);
	add_varint(m, (uint64_t)v);
}

void ct_pb_add_float(struct ct_str *m, int field, float v)
{
	add_tag(m, field, FIXED32);
	ct_str_add_bytes(m, &v, sizeof(v)); /* little-endian, like every host of ctrain */
}

void ct_pb_add_double(struct ct_str *m, int field, double v)
{
	add_tag(m, field, FIXED64);
	ct_str_add_bytes(m, &v, sizeof(v));
}

void ct_pb_begin_bytes(struct ct_str *m, int field, uint64_t n)
{
	add_tag(m, field, LENGTH);
	add_varint(m, n);
}

void ct_pb_add_bytes(struct ct_str *m, int field, const void *p, size_t n)
{
	ct_pb_begin_bytes(m, field, n);
	ct_str_add_bytes(m, p, n);
}

void ct_pb_add_string(struct ct_str *m, int field, const char *s)
{
	ct_pb_add_bytes(m, field, s, strlen(s));
}

void ct_pb_add_message(struct ct_str *m, int field, struct ct_str *nested)
{
	m->failed = m->failed || nested->failed;
	ct_pb_add_bytes(m, field, ct_str_text(nested), nested->len);
	ct_str_release(nested);
}
