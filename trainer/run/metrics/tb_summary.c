/* Images, histograms and hyperparameters in event files. The messages are those of summary.proto and event.proto of
 * TensorFlow, and of plugin_data.proto and api.proto of TensorBoard's hparams plugin. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/protobuf.h"
#include "trainer/run/metrics/tb_events_impl.h"

enum { VALUE_TAG = 1, VALUE_IMAGE = 4, VALUE_HISTOGRAM = 5, VALUE_METADATA = 9 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH, IMAGE_CHANNELS, IMAGE_BYTES };
enum {
	HISTOGRAM_MIN = 1,
	HISTOGRAM_MAX,
	HISTOGRAM_N,
	HISTOGRAM_SUM,
	HISTOGRAM_SQUARES,
	HISTOGRAM_LIMITS,
	HISTOGRAM_COUNTS
};
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { HPARAMS_EXPERIMENT = 2, HPARAMS_START, HPARAMS_END };
enum {
	EXPERIMENT_HPARAMS = 4,
	EXPERIMENT_METRICS = 5,
	INFO_NAME = 1,
	INFO_TYPE = 4,
	TYPE_STRING = 1,
	TYPE_FLOAT64 = 3
};
enum { METRIC_NAME = 1, METRIC_GROUP = 1, METRIC_TAG = 2 };
enum { START_HPARAMS = 1, START_TIME = 5, MAP_KEY = 1, MAP_VALUE = 2, NUMBER_VALUE = 2, STRING_VALUE = 3 };
enum { END_STATUS = 1, END_TIME = 2, STATUS_SUCCESS = 1, STATUS_FAILURE = 2 };
enum { BINS = 64, MAX_VALUES = 1 << 20 };

/* Writes a value whose fields, except for the tag, are `fields`, and releases them. */
static enum ct_status put_value(ct_tb *tb, uint64_t step, const char *tag, int field, struct ct_str *fields)
{
	struct ct_str value = {0};

	ct_pb_add_string(&value, VALUE_TAG, tag);
	ct_pb_add_message(&value, field, fields);
	enum ct_status st = ct_str_status(&value);
	if (st == CT_OK)
		st = ct__tb_value(tb, step, value.s, value.len);
	ct_str_release(&value);
	return st;
}

enum ct_status ct__tb_image(ct_tb *tb, uint64_t step, const char *tag, const struct ct_tb_image *image)
{
	struct ct_str m = {0};

	ct_pb_add_int(&m, IMAGE_HEIGHT, image->h);
	ct_pb_add_int(&m, IMAGE_WIDTH, image->w);
	ct_pb_add_int(&m, IMAGE_CHANNELS, 3);
	ct_pb_add_bytes(&m, IMAGE_BYTES, image->png, image->n);
	return put_value(tb, step, tag, VALUE_IMAGE, &m);
}

/* ---- histograms */

struct range {
	double low, high, sum, squares, n;
};

static struct range range_of(const float *v, size_t n, size_t stride)
{
	struct range r = {.low = INFINITY, .high = -INFINITY};

	for (size_t i = 0; i < n; i += stride) {
		const double x = (double)v[i];

		if (!isfinite(x))
			continue;
		r.low = fmin(r.low, x);
		r.high = fmax(r.high, x);
		r.sum += x;
		r.squares += x * x;
		r.n++;
	}
	return r;
}

enum ct_status ct__tb_histogram(ct_tb *tb, uint64_t step, const char *tag, const float *v, size_t n)
{
	const size_t stride = n / MAX_VALUES + 1;
	const struct range r = range_of(v, n, stride);
	double limits[BINS], counts[BINS] = {0};
	struct ct_str m = {0};

	if (!(r.n > 0))
		return CT_OK;
	const double width = r.high > r.low ? (r.high - r.low) / BINS : 1;
	for (int i = 0; i < BINS; i++)
		limits[i] = i == BINS - 1 && r.high > r.low ? r.high : r.low + width * (i + 1);
	for (size_t i = 0; i < n; i += stride) {
		const double at = ((double)v[i] - r.low) / width;

		if (isfinite(v[i]))
			counts[at < BINS - 1 ? (int)at : BINS - 1]++;
	}
	ct_pb_add_double(&m, HISTOGRAM_MIN, r.low);
	ct_pb_add_double(&m, HISTOGRAM_MAX, r.high);
	ct_pb_add_double(&m, HISTOGRAM_N, r.n);
	ct_pb_add_double(&m, HISTOGRAM_SUM, r.sum);
	ct_pb_add_double(&m, HISTOGRAM_SQUARES, r.squares);
	ct_pb_add_bytes(&m, HISTOGRAM_LIMITS, limits, sizeof(limits));
	ct_pb_add_bytes(&m, HISTOGRAM_COUNTS, counts, sizeof(counts));
	return put_value(tb, step, tag, VALUE_HISTOGRAM, &m);
}

/* ---- hyperparameters */

/* Writes the content of the plugin, and releases it. */
static enum ct_status put_hparams(ct_tb *tb, const char *tag, int field, struct ct_str *part)
{
	struct ct_str content = {0}, plugin = {0}, metadata = {0};

	ct_pb_add_message(&content, field, part);
	ct_pb_add_string(&plugin, PLUGIN_NAME, "hparams");
	ct_pb_add_message(&plugin, PLUGIN_CONTENT, &content);
	ct_pb_add_message(&metadata, METADATA_PLUGIN, &plugin);
	return put_value(tb, 0, tag, VALUE_METADATA, &metadata);
}

static void put_metric(struct ct_str *experiment, const char *tag)
{
	struct ct_str name = {0}, info = {0};

	ct_pb_add_string(&name, METRIC_TAG, tag);
	ct_pb_add_message(&info, METRIC_NAME, &name);
	ct_pb_add_message(experiment, EXPERIMENT_METRICS, &info);
}

/* Adds the key to the experiment, and the value to the start of the session. */
static void put_hparam(struct ct_str *experiment, struct ct_str *start, const char *key, size_t key_len,
		       const char *value, size_t value_len)
{
	struct ct_str info = {0}, entry = {0}, v = {0}, text = {0};
	double number;

	ct_str_add_bytes(&text, value, value_len);
	const bool is_number = ct_parse_f64(ct_str_text(&text), &number) == CT_OK;
	ct_error_clear();
	ct_pb_add_bytes(&info, INFO_NAME, key, key_len);
	ct_pb_add_int(&info, INFO_TYPE, is_number ? TYPE_FLOAT64 : TYPE_STRING);
	ct_pb_add_message(experiment, EXPERIMENT_HPARAMS, &info);
	if (is_number)
		ct_pb_add_double(&v, NUMBER_VALUE, number);
	else
		ct_pb_add_bytes(&v, STRING_VALUE, value, value_len);
	ct_pb_add_bytes(&entry, MAP_KEY, key, key_len);
	ct_pb_add_message(&entry, MAP_VALUE, &v);
	ct_pb_add_message(start, START_HPARAMS, &entry);
	ct_str_release(&text);
}

enum ct_status ct__tb_hparams(ct_tb *tb, const char *lines)
{
	struct ct_str experiment = {0}, start = {0};

	for (const char *line = lines; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const size_t len = strcspn(line, "\n"), key = strcspn(line, "=\n");

		if (key < len)
			put_hparam(&experiment, &start, line, key, line + key + 1, len - key - 1);
	}
	put_metric(&experiment, "eval/top1");
	put_metric(&experiment, "eval/loss");
	put_metric(&experiment, "epoch/train_loss");
	ct_pb_add_double(&start, START_TIME, ct_wall_seconds());
	const enum ct_status st = put_hparams(tb, "_hparams_/experiment", HPARAMS_EXPERIMENT, &experiment);
	if (st < 0) {
		ct_str_release(&start);
		return st;
	}
	return put_hparams(tb, "_hparams_/session_start_info", HPARAMS_START, &start);
}

enum ct_status ct__tb_end(ct_tb *tb, bool success)
{
	struct ct_str end = {0};

	ct_pb_add_int(&end, END_STATUS, success ? STATUS_SUCCESS : STATUS_FAILURE);
	ct_pb_add_double(&end, END_TIME, ct_wall_seconds());
	return put_hparams(tb, "_hparams_/session_end_info", HPARAMS_END, &end);
}
