/* `ctrain data digits`: generates a substitute for MNIST, for machines that cannot download it. */
#include <stdio.h>

#include "data/digits/digits.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

enum ct_status ct_cmd_data_digits(const struct ct_cli *cli)
{
	const struct ct_digits_options *o = cli->own;
	int64_t train, test, seed;

	CT_TRY(ct_cli_number("--train", o->train, 60000, 0, 10000000, &train));
	CT_TRY(ct_cli_number("--test", o->test, 10000, 0, 10000000, &test));
	CT_TRY(ct_cli_number("--seed", o->seed, 1, 0, INT64_MAX, &seed));
	struct ct_digits_opts opts = {.dir = cli->out ? cli->out : "datasets/mnist",
				      .n_train = (uint32_t)train,
				      .n_test = (uint32_t)test,
				      .seed = (uint64_t)seed,
				      .force = cli->force};
	CT_TRY(ct_digits_write(&opts));
	printf("%s: %u + %u generated digits (not MNIST), seed %llu\n", opts.dir, opts.n_train, opts.n_test,
	       (unsigned long long)opts.seed);
	return CT_OK;
}
