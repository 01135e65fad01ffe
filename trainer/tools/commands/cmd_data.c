/* `ctrain data digits`: generates a substitute for MNIST, for machines that cannot download it. */
#include <stdio.h>

#include "data/digits/digits.h"
#include "trainer/tools/commands/commands.h"

enum ct_status ct_cmd_data_digits(const struct ct_cli *cli)
{
	int64_t train, test, seed;

	CT_TRY(ct_cli_number("--train", cli->train_count, 60000, 0, 10000000, &train));
	CT_TRY(ct_cli_number("--test", cli->test_count, 10000, 0, 10000000, &test));
	CT_TRY(ct_cli_number("--seed", cli->seed, 1, 0, INT64_MAX, &seed));
	struct ct_digits_opts o = {.dir = cli->out ? cli->out : "datasets/mnist",
				   .n_train = (uint32_t)train,
				   .n_test = (uint32_t)test,
				   .seed = (uint64_t)seed,
				   .force = cli->force};
	CT_TRY(ct_digits_write(&o));
	printf("%s: %u + %u generated digits (not MNIST), seed %llu\n", o.dir, o.n_train, o.n_test,
	       (unsigned long long)o.seed);
	return CT_OK;
}
