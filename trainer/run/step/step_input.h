/* The input of a step in device memory. The batches of the loader are copied to it by a stream of their own, while the
 * device still computes earlier steps. Recorded work can read it, because the addresses are the same in all steps.
 *
 * Each slot of posted steps has its own input. A slot is used again only after the host has waited for the results of
 * its previous step (ct_stepper_take), so copies need not wait for the work that reads the input. The work waits for
 * the copies by an event (ct_step_input_wait). */
#ifndef CT_TRAINER_RUN_STEP_STEP_INPUT_H
#define CT_TRAINER_RUN_STEP_STEP_INPUT_H

#include "nn/engine.h"

struct ct_step_input {
	ct_stream *stream; /* copies; borrowed */
	ct_event *copied;
	char *memory;
	size_t bytes;
};

/* The size of a micro-batch. */
struct ct_step_input_size {
	int n_micros;   /* in a step */
	size_t n_rows;  /* maximum number of rows */
	size_t x_bytes; /* of a row of x, or of its description */
	size_t targets; /* number of targets of a row */
};

enum ct_status ct_step_input_init(struct ct_step_input *in, ct_stream *s) CT_MUST_CHECK;
/* A zeroed *in is allowed. */
void ct_step_input_release(struct ct_step_input *in);
/* Posts copies of the arrays of *b, which are memory of ct_device_host_alloc, and replaces the pointers in *b by those
 * of the copies. They depend only on `micro` and the size. Allocates memory if the size has grown. */
enum ct_status ct_step_input_copy(struct ct_step_input *in, int micro, const struct ct_step_input_size *size,
				  struct ct_batch *b) CT_MUST_CHECK;
/* Work that is posted to s after this call runs after the copies that have been posted. */
enum ct_status ct_step_input_wait(struct ct_step_input *in, ct_stream *s) CT_MUST_CHECK;

#endif
