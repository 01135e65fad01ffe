/* The largest logit is subtracted first, so that no exponential overflows, and the sum is computed in double. The best
 * k classes are found by insertion into a sorted list, which is fast because k is small; the strict comparison keeps
 * equal values in the order of their classes. */
#include "infer/ranking.h"

#include <math.h>

void ct_softmax(float *x, int n)
{
	float most = x[0];
	double sum = 0;

	for (int i = 1; i < n; i++)
		most = fmaxf(most, x[i]);
	for (int i = 0; i < n; i++)
		sum += exp((double)(x[i] - most));
	for (int i = 0; i < n; i++)
		x[i] = (float)(exp((double)(x[i] - most)) / sum);
}

void ct_top_k(const float *x, int n, int k, int *label, float *value)
{
	int found = 0;

	for (int i = 0; i < n; i++) {
		int at = found;

		while (at > 0 && x[i] > value[at - 1])
			at--;
		if (at == k)
			continue;
		found += found < k;
		for (int j = found - 1; j > at; j--) {
			value[j] = value[j - 1];
			label[j] = label[j - 1];
		}
		value[at] = x[i];
		label[at] = i;
	}
}
