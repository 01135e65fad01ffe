/* The blocked layout of ctrain's own kernels: images are [N,C/b,H,W,b], with zeros in the lanes after the last channel.
 * A block of b channels fills a vector. */
#ifndef CT_NN_ONEDNN_KERNELS_BLOCK_H
#define CT_NN_ONEDNN_KERNELS_BLOCK_H

/* Returns b: 16 with AVX-512, otherwise 8. */
int ct__lanes(void);

#endif
