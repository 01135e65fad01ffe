/* Writes messages in the binary format of Protocol Buffers (the wire format of
 * protobuf.dev/programming-guides/encoding), as far as ONNX and TensorBoard files need it. A message is a string to
 * which fields are appended; a nested message is a separate string that is then appended as a field. Errors are those
 * of struct ct_str. */
#ifndef CT_BASE_PROTOBUF_H
#define CT_BASE_PROTOBUF_H

#include "base/mem.h"

void ct_pb_add_int(struct ct_str *m, int field, int64_t v);
void ct_pb_add_float(struct ct_str *m, int field, float v);
void ct_pb_add_double(struct ct_str *m, int field, double v);
void ct_pb_add_string(struct ct_str *m, int field, const char *s);
/* Appends a nested message or bytes. */
void ct_pb_add_bytes(struct ct_str *m, int field, const void *p, size_t n);
/* Appends a nested message and releases it. A failure of the nested message becomes one of m. */
void ct_pb_add_message(struct ct_str *m, int field, struct ct_str *nested);
/* Appends what precedes the n bytes of a nested message or of bytes that the caller appends next. */
void ct_pb_begin_bytes(struct ct_str *m, int field, uint64_t n);

#endif
