/* The first pass of a compilation: which nodes are computed together, as far as the graph alone shows. */
#ifndef CT_NN_ONEDNN_COMPILE_FUSE_H
#define CT_NN_ONEDNN_COMPILE_FUSE_H

#include "nn/onednn/program/program.h"

/* Initialises all values; fills value.fusion and value.gradient.needed. */
void ct__onednn_fuse(struct onednn_program *p);

#endif
