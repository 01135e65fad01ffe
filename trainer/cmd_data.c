/* `ctrain data digits`: a data set where MNIST can't be downloaded. */
#include <stdio.h>

#include "data/digits.h"
#include "trainer/cli.h"

static enum ct_status parse_count(const char *option, const char *text, int64_t fallback, int64_t max, int64_t *out)
{
	*out = fallback;
	if (!text)
		return CT_OK;
	CT_TRY(ct_parse_i64(text, out));
	if (*out < 0 || *out > max)
		return CT_FAIL(CT_USAGE, "%s %s: expected a number from 0 to %lld", option, text, (long long)max);
	return CT_OK;
}

enum ct_status ct_cmd_data_digits(const struct ct_cli *cli)
{
	int64_t train, test, seed;
	CT_TRY(parse_count("--train", cli->train_count, 60000, 10000000, &train));
	CT_TRY(parse_count("--test", cli->test_count, 10000, 10000000, &test));
	CT_TRY(parse_count("--seed", cli->seed, 1, INT64_MAX, &seed));
	struct ct_digits_opts o = {.dir = cli->out ? cli->out : "datasets/mnist",
				   .n_train = (uint32_t)train,
				   .n_test = (uint32_t)test,
				   .seed = (uint64_t)seed};
	CT_TRY(ct_digits_write(&o));
	printf("%s: %u + %u drawn digits (not MNIST), seed %llu\n", o.dir, o.n_train, o.n_test,
	       (unsigned long long)o.seed);
	return CT_OK;
}
