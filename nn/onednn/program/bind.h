/* Binds buffers, parameters and gradients to addresses. Only bind.c knows the addresses of the arenas. */
#ifndef CT_NN_ONEDNN_PROGRAM_BIND_H
#define CT_NN_ONEDNN_PROGRAM_BIND_H

#include "nn/onednn/program/program.h"

/* Makes the net's arena large enough for the program, and binds all tasks. The memory of the program must have been
 * planned. The values of other programs in the arena are lost. */
enum ct_status ct__onednn_bind(struct onednn_program *p) CT_MUST_CHECK;
/* Removes the program from the net's list. Frees the arena if this was the last program. Does nothing if the program is
 * not bound. */
void ct__onednn_unbind(struct onednn_program *p);
/* Prepares the arena for the values of this program. Call this before a forward pass. */
enum ct_status ct__onednn_take_arena(struct onednn_program *p) CT_MUST_CHECK;
/* Binds the backward tasks to another gradient arena. */
enum ct_status ct__onednn_bind_grads(struct onednn_program *p, const ct_arena *grads) CT_MUST_CHECK;
/* Binds the tasks that read the input to another address. */
enum ct_status ct__onednn_bind_input(struct onednn_program *p, const void *x) CT_MUST_CHECK;
void *ct__onednn_at(const struct onednn_program *p, struct onednn_ref ref);

#endif
