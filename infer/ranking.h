/* Turns logits into probabilities and the most likely classes. */
#ifndef CT_INFER_RANKING_H
#define CT_INFER_RANKING_H

/* Replaces the logits x [n] by their softmax. */
void ct_softmax(float *x, int n);
/* Writes the classes with the largest values of x [n] and these values, largest first: label and value [k], k <= n. Of
 * equal values, the first one comes first. */
void ct_top_k(const float *x, int n, int k, int *label, float *value);

#endif
