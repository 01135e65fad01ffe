/* The blocked layout of ctrain's own kernels: images are [N,C/16,H,W,16], with zeros in the lanes after the last
 * channel. */
#ifndef CT_NN_ONEDNN_KERNELS_BLOCK_H
#define CT_NN_ONEDNN_KERNELS_BLOCK_H

/* Number of channels in a block. */
#define CT_LANES 16

#endif
