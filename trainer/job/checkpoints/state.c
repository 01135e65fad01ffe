/* state.json. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash/sha256.h"
#include "base/json.h"
#include "trainer/job/checkpoints/checkpoint_files.h"

#define FORMAT "ctrain checkpoint"
#define VERSION 1
#define MAX_BYTES ((size_t)4 << 20)
#define HEX_LEN 64

/* The text before the checksum. The JSON writer keeps the order of insertion. */
static const char head[] = "{\n  \"checksum\": \"";
static const char zeros[HEX_LEN + 1] = "0000000000000000000000000000000000000000000000000000000000000000";

/* A LATER field is missing in the first checkpoints of this version. It is then 0 (U64, U32) or 1 (F64). */
enum field_type {
	FIELD_U32,
	FIELD_LATER_U32,
	FIELD_U64,
	FIELD_LATER_U64,
	FIELD_I64,
	FIELD_F64,
	FIELD_LATER_F64,
	FIELD_BOOL,
	FIELD_HEX
};

static const struct field {
	const char *key;
	enum field_type type;
	size_t offset;
} fields[] = {
#define FIELD(name, type) {#name, type, offsetof(struct ct_train_state, name)}
	FIELD(step, FIELD_U64),
	FIELD(epoch, FIELD_U32),
	FIELD(step_in_epoch, FIELD_U64),
	FIELD(optim_steps, FIELD_U64),
	FIELD(best_top1, FIELD_F64),
	FIELD(best_loss, FIELD_F64),
	FIELD(best_step, FIELD_U64),
	FIELD(last_top1, FIELD_F64),
	FIELD(last_loss, FIELD_F64),
	FIELD(epoch_loss_sum, FIELD_F64),
	FIELD(epoch_images, FIELD_U64),
	FIELD(images, FIELD_U64),
	FIELD(train_seconds, FIELD_F64),
	FIELD(global_batch, FIELD_U32),
	FIELD(world, FIELD_U32),
	FIELD(seed, FIELD_I64),
	FIELD(finished, FIELD_BOOL),
	FIELD(config_digest, FIELD_HEX),
	FIELD(data_digest, FIELD_HEX),
	FIELD(graph_digest, FIELD_HEX),
	FIELD(epoch_bad, FIELD_LATER_U64),
	FIELD(loss_scale, FIELD_LATER_F64),
	FIELD(loss_scale_steps, FIELD_LATER_U32),
	FIELD(skipped_updates, FIELD_LATER_U64),
	FIELD(bucket_bytes, FIELD_LATER_U64),
	FIELD(lr_scale, FIELD_LATER_F64),
	FIELD(plateau_best, FIELD_LATER_F64),
	FIELD(plateau_n_since, FIELD_LATER_U32),
	FIELD(plateau_cooldown, FIELD_LATER_U32),
	FIELD(early_best, FIELD_LATER_F64),
	FIELD(early_n_since, FIELD_LATER_U32),
#undef FIELD
};

const char *ct_ckpt_file_name(int i)
{
	return i == 0 ? CT_CKPT_MODEL : CT_CKPT_OPTIM;
}

void ct_ckpt_state_release(struct ct_ckpt_state *s)
{
	ct_free(s->config_lines);
	ct_free(s->net_plan);
	s->config_lines = s->net_plan = NULL;
}

static void set_u64(ct_json *o, const char *key, uint64_t v)
{
	/* No counter of updates, images or bytes can reach this value. */
	CT_ASSERT(v <= INT64_MAX);
	ct_json_set_i64(o, key, (int64_t)v);
}

/* JSON has no infinities and no NaN, so they are stored as strings. */
static void set_f64(ct_json *o, const char *key, double v)
{
	if (isnan(v))
		ct_json_set_str(o, key, "nan");
	else if (isinf(v))
		ct_json_set_str(o, key, v > 0 ? "inf" : "-inf");
	else
		ct_json_set_f64(o, key, v);
}

static void set_field(ct_json *o, const struct field *f, const struct ct_train_state *t)
{
	const void *p = (const char *)t + f->offset;

	switch (f->type) {
	case FIELD_U32:
	case FIELD_LATER_U32:
		ct_json_set_i64(o, f->key, *(const uint32_t *)p);
		break;
	case FIELD_U64:
	case FIELD_LATER_U64:
		set_u64(o, f->key, *(const uint64_t *)p);
		break;
	case FIELD_I64:
		ct_json_set_i64(o, f->key, *(const int64_t *)p);
		break;
	case FIELD_F64:
	case FIELD_LATER_F64:
		set_f64(o, f->key, *(const double *)p);
		break;
	case FIELD_BOOL:
		ct_json_set_bool(o, f->key, *(const bool *)p);
		break;
	case FIELD_HEX:
		ct_json_set_str(o, f->key, p);
		break;
	}
}

static ct_json *make_json(const struct ct_ckpt_state *s)
{
	ct_json *o = ct_json_object(), *files = ct_json_object();

	ct_json_set_str(o, "checksum", zeros);
	ct_json_set_str(o, "format", FORMAT);
	ct_json_set_i64(o, "v", VERSION);
	set_u64(o, "save_index", s->save_index);
	for (size_t i = 0; i < CT_ARRAY_LEN(fields); i++)
		set_field(o, &fields[i], &s->train);
	for (int i = 0; i < CT_CKPT_N_FILES; i++) {
		ct_json *file = ct_json_object();

		set_u64(file, "bytes", s->files[i].bytes);
		ct_json_set_str(file, "sha256", s->files[i].sha256);
		ct_json_set(files, ct_ckpt_file_name(i), file);
	}
	ct_json_set(o, "files", files);
	ct_json_set_str(o, "config", s->config_lines ? s->config_lines : "");
	if (s->net_plan)
		ct_json_set_str(o, "plan", s->net_plan);
	return o;
}

/* Computes the checksum of a text that starts with `head` and a checksum. */
static void text_checksum(const char *text, size_t len, char hex[65])
{
	size_t n_head = strlen(head);
	struct ct_sha256 h;

	ct_sha256_init(&h);
	ct_sha256_update(&h, text, n_head);
	ct_sha256_update(&h, zeros, HEX_LEN);
	ct_sha256_update(&h, text + n_head + HEX_LEN, len - n_head - HEX_LEN);
	ct_sha256_final_hex(&h, hex);
}

enum ct_status ct_ckpt_state_write(const char *path, const struct ct_ckpt_state *s, uint64_t *bytes)
{
	ct_json *j = make_json(s);
	struct ct_str text = {0};
	enum ct_status st;
	char hex[65];

	CT_TRY_GOTO(ct_json_dump(j, true, &text), st, out);
	ct_str_add(&text, "\n");
	CT_TRY_GOTO(ct_str_status(&text), st, out);
	if (text.len > MAX_BYTES) {
		st = CT_FAIL(CT_BUG, "%s would have %zu bytes, which is too large to be read again", path, text.len);
		goto out;
	}
	CT_ASSERT(text.len > strlen(head) + HEX_LEN && memcmp(text.s, head, strlen(head)) == 0);
	text_checksum(text.s, text.len, hex);
	memcpy(text.s + strlen(head), hex, HEX_LEN);
	CT_TRY_GOTO(ct_file_replace(path, text.s, text.len), st, out);
	*bytes = text.len;
out:
	ct_str_release(&text);
	ct_json_destroy(j);
	return st;
}

/* A SHA-256 in lower-case hexadecimal, or an empty string if allowed. */
static enum ct_status get_hex(const ct_json *o, const char *key, bool may_be_empty, char out[65])
{
	const char *text;

	CT_TRY(ct_json_get_str(o, key, &text));
	if (!(text[0] == '\0' && may_be_empty) &&
	    (strlen(text) != HEX_LEN || strspn(text, "0123456789abcdef") != HEX_LEN))
		return CT_FAIL(CT_DATA, "key \"%s\" is not a SHA-256 in hexadecimal", key);
	memcpy(out, text, strlen(text) + 1);
	return CT_OK;
}

static enum ct_status get_natural(const ct_json *o, const char *key, int64_t most, uint64_t *out)
{
	int64_t v;

	CT_TRY(ct_json_get_i64(o, key, &v));
	if (v < 0 || v > most)
		return CT_FAIL(CT_DATA, "key \"%s\" is %lld, not a number from 0 to %lld", key, (long long)v,
			       (long long)most);
	*out = (uint64_t)v;
	return CT_OK;
}

static enum ct_status get_f64(const ct_json *o, const char *key, double *out)
{
	const ct_json *j = ct_json_get(o, key);
	const char *text = j ? ct_json_as_str(j) : NULL;

	if (!text)
		return ct_json_get_f64(o, key, out);
	if (strcmp(text, "nan") == 0)
		*out = NAN;
	else if (strcmp(text, "inf") == 0)
		*out = INFINITY;
	else if (strcmp(text, "-inf") == 0)
		*out = -INFINITY;
	else
		return CT_FAIL(CT_DATA, "key \"%s\" is a string, not a number", key);
	return CT_OK;
}

static enum ct_status get_field(const ct_json *o, const struct field *f, struct ct_train_state *t)
{
	void *p = (char *)t + f->offset;
	uint64_t v = 0;

	switch (f->type) {
	case FIELD_LATER_U32:
		if (!ct_json_get(o, f->key))
			return CT_OK;
		/* fall through */
	case FIELD_U32:
		CT_TRY(get_natural(o, f->key, UINT32_MAX, &v));
		*(uint32_t *)p = (uint32_t)v;
		return CT_OK;
	case FIELD_U64:
		return get_natural(o, f->key, INT64_MAX, p);
	case FIELD_LATER_U64:
		return ct_json_get(o, f->key) ? get_natural(o, f->key, INT64_MAX, p) : CT_OK;
	case FIELD_I64:
		return ct_json_get_i64(o, f->key, p);
	case FIELD_LATER_F64:
		*(double *)p = 1;
		return ct_json_get(o, f->key) ? get_f64(o, f->key, p) : CT_OK;
	case FIELD_F64:
		return get_f64(o, f->key, p);
	case FIELD_BOOL:
		return ct_json_get_bool(o, f->key, p);
	case FIELD_HEX:
		return get_hex(o, f->key, true, p);
	}
	return CT_FAIL(CT_BUG, "field type %d", (int)f->type);
}

static enum ct_status get_files(const ct_json *o, struct ct_ckpt_state *s)
{
	const ct_json *files = ct_json_get(o, "files");

	for (int i = 0; i < CT_CKPT_N_FILES; i++) {
		const ct_json *file = files ? ct_json_get(files, ct_ckpt_file_name(i)) : NULL;

		if (!file)
			return CT_FAIL(CT_DATA, "file %s is not listed", ct_ckpt_file_name(i));
		CT_TRY(get_natural(file, "bytes", INT64_MAX, &s->files[i].bytes));
		CT_TRY(get_hex(file, "sha256", false, s->files[i].sha256));
	}
	return CT_OK;
}

static enum ct_status read_json(const ct_json *o, struct ct_ckpt_state *s)
{
	const char *format, *config, *plan;
	int64_t version;

	CT_TRY(ct_json_get_str(o, "format", &format));
	CT_TRY(ct_json_get_i64(o, "v", &version));
	if (strcmp(format, FORMAT) != 0 || version != VERSION)
		return CT_FAIL(CT_DATA, "it does not have version %d of the format \"%s\"", VERSION, FORMAT);
	CT_TRY(get_natural(o, "save_index", INT64_MAX, &s->save_index));
	for (size_t i = 0; i < CT_ARRAY_LEN(fields); i++)
		CT_TRY(get_field(o, &fields[i], &s->train));
	CT_TRY(get_files(o, s));
	CT_TRY(ct_json_get_str(o, "config", &config));
	CT_TRY_ALLOC(s->config_lines = ct_strdup(config));
	if (!ct_json_get(o, "plan"))
		return CT_OK;
	CT_TRY(ct_json_get_str(o, "plan", &plan));
	CT_TRY_ALLOC(s->net_plan = ct_strdup(plan));
	return CT_OK;
}

/* Reads the fields before it compares the checksum, so that the fuzzer reaches the fields, too. */
enum ct_status ct_ckpt_state_parse(const char *text, size_t len, const char *where, struct ct_ckpt_state *out)
{
	struct ct_ckpt_state s = {0};
	enum ct_status st;
	char hex[65];
	ct_json *j;

	CT_TRY(ct_json_parse(text, len, where, &j));
	st = ct_json_is_object(j) ? read_json(j, &s) : CT_FAIL(CT_DATA, "not a JSON object");
	if (st < 0) {
		ct_error_wrap("%s", where);
		goto fail;
	}
	if (len < strlen(head) + HEX_LEN || memcmp(text, head, strlen(head)) != 0) {
		st = CT_FAIL(CT_DATA, "%s: does not start with its checksum", where);
		goto fail;
	}
	text_checksum(text, len, hex);
	if (memcmp(text + strlen(head), hex, HEX_LEN) != 0) {
		st = CT_FAIL(CT_DATA, "%s: its checksum does not match its text, so it is damaged or was edited",
			     where);
		goto fail;
	}
	ct_json_destroy(j);
	*out = s;
	return CT_OK;

fail:
	ct_ckpt_state_release(&s);
	ct_json_destroy(j);
	return st;
}

enum ct_status ct_ckpt_state_read(const char *folder, struct ct_ckpt_state *out)
{
	char *path, *text = NULL;
	enum ct_status st;
	size_t len;

	CT_TRY_ALLOC(path = ct_path_join(folder, CT_CKPT_STATE));
	CT_TRY_GOTO(ct_file_read(path, MAX_BYTES, &text, &len), st, out);
	CT_TRY_GOTO(ct_ckpt_state_parse(text, len, path, out), st, out);
out:
	ct_free(text);
	ct_free(path);
	return st;
}

bool ct_ckpt_config_value(const struct ct_ckpt_state *s, const char *key, char *out, size_t size)
{
	const size_t key_len = strlen(key);

	for (const char *line = s->config_lines; *line; line += *line == '\n') {
		const size_t len = strcspn(line, "\n");

		if (len > key_len && memcmp(line, key, key_len) == 0 && line[key_len] == '=') {
			const int n = (int)(len - key_len - 1);

			return snprintf(out, size, "%.*s", n, line + key_len + 1) < (int)size;
		}
		line += len;
	}
	return false;
}

enum ct_status ct_checkpoint_load_state(const char *path, struct ct_train_state *out, char **config_lines)
{
	struct ct_ckpt_state s;

	CT_TRY(ct_ckpt_state_read(path, &s));
	*out = s.train;
	if (config_lines) {
		*config_lines = s.config_lines;
		s.config_lines = NULL;
	}
	ct_ckpt_state_release(&s);
	return CT_OK;
}
