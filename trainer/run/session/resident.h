/* Data sets in device memory (data.on_device). They are copied once. The loader then delivers descriptions of rows
 * instead of pixels, and the engine computes the pixels. Results are bit-identical. */
#ifndef CT_TRAINER_RUN_SESSION_RESIDENT_H
#define CT_TRAINER_RUN_SESSION_RESIDENT_H

#include "trainer/run/session/session.h"

/* Copies the data sets of the session to its device and binds them to its net, or leaves them on the host, and logs
 * where they are. Fails with CT_CONFIG and the reason if data.on_device is `on` and this is not possible. */
enum ct_status ct_resident_place(struct ct_session *s) CT_MUST_CHECK;
/* Frees the copies, which are in the memory of this device. Call it after the net has been destroyed. */
void ct_resident_release(ct_device *device, struct ct_session_data *data);
/* Sets the loader options that depend on where the data set is. Describing rows takes so little time that threads would
 * only slow it down, so data.workers=auto is 0. */
void ct_resident_set_opts(const struct ct_session *s, enum ct_mode mode, struct ct_loader_opts *lo);
/* The batch that a program reads; it borrows the arrays of b. */
struct ct_batch ct_resident_batch(const struct ct_loader_batch *b);

#endif
