/* The first pass of a compilation. It decides which nodes are computed together, based on the graph alone. */
#ifndef CT_NN_ONEDNN_COMPILE_FUSE_H
#define CT_NN_ONEDNN_COMPILE_FUSE_H

#include "nn/onednn/program/program.h"

/* Initializes all values. Sets value.fusion and value.gradient.needed. */
void ct__onednn_fuse(struct onednn_program *p);

#endif
