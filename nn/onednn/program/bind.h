/* Binding: from buffers, parameters and gradients to addresses. The only file that knows where the arenas of a net are. */
#ifndef CT_NN_ONEDNN_PROGRAM_BIND_H
#define CT_NN_ONEDNN_PROGRAM_BIND_H

#include "nn/onednn/program/program.h"

/* Makes the net's arena large enough for the program, whose memory is planned, and binds all tasks. What other programs had
 * stored in the arena is lost. */
enum ct_status ct__onednn_bind(struct onednn_program *p) CT_MUST_CHECK;
/* Takes the program off the net's list; the last one frees the arena. Does nothing for a program that is not bound. */
void ct__onednn_unbind(struct onednn_program *p);
/* Call before a forward pass: the arena holds the values of this program from now on. */
enum ct_status ct__onednn_take_arena(struct onednn_program *p) CT_MUST_CHECK;
/* Binds the backward tasks to another gradient arena. */
enum ct_status ct__onednn_bind_grads(struct onednn_program *p, const ct_arena *grads) CT_MUST_CHECK;
/* Binds the readers of the input to another address. */
enum ct_status ct__onednn_bind_input(struct onednn_program *p, const void *x) CT_MUST_CHECK;
void *ct__onednn_at(const struct onednn_program *p, struct onednn_ref ref);

#endif
