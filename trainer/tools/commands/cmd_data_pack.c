/* `ctrain data pack SRC_DIR OUT_PATTERN`: packs a directory of images into shards. It then opens the shards once, which
 * builds their index and verifies what was written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "data/pack/pack.h"
#include "trainer/run/metrics/ticker.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

/* "1000" samples, or "256MB", "1GiB". */
static enum ct_status parse_size(const char *text, struct ct_pack_opts *o)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} units[] = {{"KB", 1000},
		     {"MB", 1000000},
		     {"GB", 1000000000},
		     {"KiB", (uint64_t)1 << 10},
		     {"MiB", (uint64_t)1 << 20},
		     {"GiB", (uint64_t)1 << 30}};
	size_t digits = strspn(text, "0123456789");
	char number[16];
	int64_t n = 0;

	snprintf(number, sizeof(number), "%.*s", (int)(digits < 15 ? digits : 15), text);
	if (digits == 0 || digits > 9 || ct_parse_i64(number, &n) < 0 || n < 1)
		digits = SIZE_MAX;
	if (digits != SIZE_MAX && text[digits] == '\0') {
		o->shard_samples = (uint32_t)n;
		return CT_OK;
	}
	for (size_t i = 0; digits != SIZE_MAX && i < CT_ARRAY_LEN(units); i++) {
		if (strcmp(text + digits, units[i].name) == 0) {
			o->shard_bytes = (uint64_t)n * units[i].bytes;
			return CT_OK;
		}
	}
	return CT_FAIL(CT_USAGE, "--shard-size %.40s: expected a number of samples (1000) or bytes (500MB, 1GiB)",
		       text);
}

static enum ct_status read_options(const struct ct_cli *cli, struct ct_pack_opts *o)
{
	const struct ct_pack_options *given = cli->own;
	int64_t n;

	if (cli->n_args > 2) {
		CT_FAIL(CT_USAGE, "data pack: unexpected argument \"%s\"", cli->args[2]);
		return ct_error_hint("put quotes around a pattern with braces; without them, the shell expands it");
	}
	*o = (struct ct_pack_opts){
		.src = cli->args[0], .pattern = cli->args[1], .classes = given->classes, .val_map = given->val_map};
	if (given->shard_size)
		CT_TRY(parse_size(given->shard_size, o));
	CT_TRY(ct_cli_number("--short", given->short_side, 0, 1, 16384, &n));
	o->short_side = (int)n;
	CT_TRY(ct_cli_number("--quality", given->quality, 0, 1, 100, &n));
	o->quality = (int)n;
	o->seekable = given->seekable;
	CT_TRY(ct_cli_number("--shuffle", given->shuffle, 0, 0, INT64_MAX, &n));
	o->shuffle = given->shuffle != NULL;
	o->seed = (uint64_t)n;
	CT_TRY(ct_cli_number("--threads", cli->threads, ct_cpu_count(), 1, 256, &n));
	o->threads = (int)n;
	return CT_OK;
}

static void show_progress(void *user, uint64_t done, uint64_t total)
{
	ct_ticker_show(user, done, total, NULL);
}

/* Builds the index, and compares the number of samples that training would find with the number that was packed. */
static enum ct_status open_shards(const struct ct_pack_opts *o, const struct ct_pack_report *r)
{
	/* Directory and pattern are passed separately, because only the name of the directory may contain spaces. */
	const char *slash = strrchr(r->shards, '/');
	struct ct_dataset_spec spec = {.name = "shards",
				       .path = slash ? slash + 1 : r->shards,
				       .threads = o->threads,
				       .n_classes = (int)r->n_classes};
	ct_dataset *d = NULL;
	char *dir;

	if (r->n_samples == 0)
		return CT_OK;
	CT_TRY_ALLOC(dir = ct_path_dir(r->shards));
	spec.dir = dir;
	enum ct_status st = ct_dataset_open(&spec, &d);
	ct_free(dir);
	CT_TRY(st);
	uint32_t n = ct_dataset_info(d)->n, skipped = ct_dataset_info(d)->n_skipped;
	ct_dataset_close(d);
	if (n == r->n_samples && skipped == 0)
		return CT_OK;
	CT_FAIL(CT_DATA, "%s: %llu samples were packed, but %u can be read", r->shards,
		(unsigned long long)r->n_samples, n);
	return ct_error_hint("the files may have been changed since; `ctrain data check` lists the problems");
}

static enum ct_status print_report(const struct ct_cli *cli, const struct ct_pack_report *r, double seconds)
{
	if (!cli->json) {
		printf("%s: %llu samples of %u classes in %u shard%s, %.1f MB (%.1f s", r->shards,
		       (unsigned long long)r->n_samples, r->n_classes, r->n_shards, ct_plural(r->n_shards),
		       (double)r->bytes * 1e-6, seconds);
		if (r->n_kept > 0)
			printf("; %u shards already existed", r->n_kept);
		printf(")\n");
		return CT_OK;
	}
	ct_json *j = ct_json_object();
	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "data_pack");
	ct_json_set_str(j, "shards", r->shards);
	ct_json_set_i64(j, "n_shards", r->n_shards);
	ct_json_set_i64(j, "n_kept", r->n_kept);
	ct_json_set_i64(j, "samples", (int64_t)r->n_samples);
	ct_json_set_i64(j, "left_out", (int64_t)r->n_left_out);
	ct_json_set_i64(j, "classes", r->n_classes);
	ct_json_set_i64(j, "bytes", (int64_t)r->bytes);
	ct_json_set_f64(j, "seconds", seconds);
	return ct_print_json(j, false);
}

static enum ct_status verdict(const struct ct_pack_report *r)
{
	if (r->n_left_out == 0)
		return CT_OK;
	CT_FAIL(CT_DATA, "%llu of %llu files are not usable images and were skipped", (unsigned long long)r->n_left_out,
		(unsigned long long)(r->n_left_out + r->n_samples));
	return ct_error_hint(
		"the files *.left-out.tsv next to the shards list them; the shards contain all other images and can be used");
}

enum ct_status ct_cmd_data_pack(const struct ct_cli *cli)
{
	struct ct_pack_opts o;
	struct ct_pack_report r = {0};
	ct_ticker *ticker = NULL;
	int64_t t0 = ct_now_ns();

	CT_TRY(read_options(cli, &o));
	CT_TRY(ct_ticker_create("packing", &ticker));
	o.progress = show_progress;
	o.user = ticker;
	enum ct_status st = ct_pack(&o, &r);
	ct_ticker_destroy(ticker);
	if (st == CT_OK)
		st = open_shards(&o, &r);
	if (st == CT_OK)
		st = print_report(cli, &r, ct_seconds_since(t0));
	if (st == CT_OK)
		st = verdict(&r);
	ct_pack_report_release(&r);
	return st;
}
