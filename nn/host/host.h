/* Computations in host memory that the CPU engines share: losses, dropout masks, and batch norm in double precision. An
 * engine must not call these functions if its values are in device memory. */
#ifndef CT_NN_HOST_HOST_H
#define CT_NN_HOST_HOST_H

#include "nn/engine_impl.h"

/* Loss heads on row-major logits [n,K]. dlogits [n,K] receives the gradient of the sum of the row losses; it is NULL in
 * evaluation. The row losses are added in order, so results do not depend on `threads`. For a mixed row, the loss is
 * mix * xent(labels) + (1 - mix) * xent(labels_b), both with label smoothing, and top-1 and top-5 are counted against
 * `labels`. If class_weights [K] is not NULL, the share of each class in the target, including its share of the
 * smoothing, is multiplied by the weight of the class, as in torch.nn.CrossEntropyLoss with reduction="sum". */
void ct_loss_softmax_xent(int threads, const float *logits, const struct ct_batch *b, int k, float smoothing,
			  const float *class_weights, float *dlogits, struct ct_metrics *m);
void ct_loss_mse(int threads, const float *y, const struct ct_batch *batch, int k, float *dy, struct ct_metrics *m);
/* Writes the dropout mask of one row of the global batch: 0 or 1/(1-p) for each of n elements. The mask is
 * bit-identical however the batch is split over ranks. */
void ct_dropout_mask(uint64_t seed, uint64_t step, int node, uint64_t row, float p, size_t n, float *mask);
/* Does the same for drop path, with one factor per row: mask[i] is the factor of row first + i of the global batch. */
void ct_drop_path_mask(uint64_t seed, uint64_t step, int node, uint64_t first, float p, int rows, float *mask);
/* If the net's opts.sync is set, posts an all-reduce (sum) of v over all ranks. */
enum ct_status ct_norm_sync(const ct_net *net, const struct ct_node *node, double *v, size_t n) CT_MUST_CHECK;
/* Returns CT_CONFIG if all ranks together have only one value per channel, because a single value has no variance. */
enum ct_status ct_norm_check_count(const struct ct_node *node, double count) CT_MUST_CHECK;

/* Batch norm in double precision. Each pass has two halves. If `sync` is set, the per-rank sums are all-reduced between
 * the two halves:
 *
 *     forward   own_statistics    sums [2C + 1]   all_statistics, forward
 *     backward  backward_sums     sums [2C]       backward_data
 *
 * stat [CT_BATCH_NORM_STATS(C)]: mean and 1/sqrt(var + eps) of each channel, the number of values from which they were
 * computed, and the sums. As in PyTorch, running_* are updated with the unbiased variance of the values of all
 * ranks. */
#define CT_BATCH_NORM_STATS(c) (4 * (size_t)(c) + 2)
double *ct_batch_norm_sums(const struct ct_node *node, double *stat);
void ct_batch_norm_own_statistics(const struct ct_node *node, int n, bool sync, const float *x, double *stat);
enum ct_status ct_batch_norm_all_statistics(const struct ct_node *node, bool sync, float *running_mean,
					    float *running_var, double *stat) CT_MUST_CHECK;
void ct_batch_norm_running(const struct ct_node *node, const float *running_mean, const float *running_var,
			   double *stat);
void ct_batch_norm_forward(const struct ct_node *node, int n, const float *x, const float *gamma, const float *beta,
			   const double *stat, float *y);
/* With xh = (x - mean) * inv and m values: dx += gamma * inv * (dy - sum(dy)/m - xh * sum(dy * xh)/m). The sums and m
 * cover all ranks. dgamma and dbeta cover only this rank, because gradients are summed over ranks later; they may be
 * NULL. With fixed statistics (ct_node.fixed_stats), which do not depend on x, dx += gamma * inv * dy. */
void ct_batch_norm_backward_sums(const struct ct_node *node, int n, const float *x, const float *dy, double *stat,
				 float *dgamma, float *dbeta);
void ct_batch_norm_backward_data(const struct ct_node *node, int n, const float *x, const float *gamma, const float *dy,
				 double *stat, float *dx);

#endif
