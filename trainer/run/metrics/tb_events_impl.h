/* Writes TensorBoard event files. A file is a sequence of TFRecords (length, masked CRC-32C
 * of the length, data, masked CRC-32C of the data). The data of each record is a protobuf message `Event`. TensorFlow's
 * record_writer.h and event.proto define the format. */
#ifndef CT_TRAINER_RUN_METRICS_TB_EVENTS_IMPL_H
#define CT_TRAINER_RUN_METRICS_TB_EVENTS_IMPL_H

#include <stdint.h>

#include "trainer/run/metrics/metrics.h"

typedef struct ct_tb ct_tb;

struct ct_tb_scalar {
	const char *tag; /* such as "train/loss" */
	double value;    /* stored as fp32 */
};

/* Creates `dir` and a new file events.out.tfevents.<seconds>.<host> in it. If resume_step > 0, the file asks
 * TensorBoard to ignore later steps in older files of the directory. On failure, this function and the functions below
 * return CT_IO, and the message contains the path. */
enum ct_status ct__tb_open(const char *dir, uint64_t resume_step, ct_tb **out) CT_MUST_CHECK;
void ct__tb_close(ct_tb *tb);
/* Writes one event with n scalars. */
enum ct_status ct__tb_scalars(ct_tb *tb, uint64_t step, const struct ct_tb_scalar *scalars, size_t n) CT_MUST_CHECK;

/* Writes one event with a value, a serialized Summary.Value. */
enum ct_status ct__tb_value(ct_tb *tb, uint64_t step, const char *value, size_t n) CT_MUST_CHECK;

/* tb_summary.c: the functions of trainer/run/metrics/metrics.h. ct__tb_end writes the end of the session that
 * ct__tb_hparams begins. */
enum ct_status ct__tb_image(ct_tb *tb, uint64_t step, const char *tag, const struct ct_tb_image *image) CT_MUST_CHECK;
enum ct_status ct__tb_histogram(ct_tb *tb, uint64_t step, const char *tag, const float *v, size_t n) CT_MUST_CHECK;
enum ct_status ct__tb_hparams(ct_tb *tb, const char *lines) CT_MUST_CHECK;
enum ct_status ct__tb_end(ct_tb *tb, bool success) CT_MUST_CHECK;

/* CRC-32C (Castagnoli, RFC 3720), and the masked form (rotated, plus a constant) that TFRecords contain. */
uint32_t ct__crc32c(const void *p, size_t n);
uint32_t ct__crc32c_masked(const void *p, size_t n);

#endif
