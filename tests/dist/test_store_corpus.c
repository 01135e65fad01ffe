/* The committed inputs of the store's fuzzer: what the server answers to each of them. If the protocol changes, an
 * input that is refused before it reaches what its name says fails here. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "dist/store/server_impl.h"
#include "tests/base/check.h"
#include "tests/fuzz/store_input.h"

#define CORPUS CT_SOURCE_DIR "/tests/fuzz/corpus/store"
/* The answers to the handshake that store_input adds. */
#define JOINED CT_WIRE_MAGIC " CHALLENGE WELCOME(0) "

/* All answers, in order. A reply is shown as "TAG:STATUS", and FAILED with the rank, the status, the phase, the steps
 * and the collective of the failure. */
static const struct {
	const char *name, *answers;
} inputs[] = {
	{"add_overflow", JOINED "1:OK 3:DATA 4:OK 5:DATA "},
	{"big_frame_cut", JOINED},
	{"consequence", JOINED "3:OK 4:OK "},
	{"empty", JOINED},
	{"failure", JOINED "FAILED(0 NUMERIC 3 12 3) 2:PEER_LOST 3:OK 4:OK 5:PEER_LOST "},
	{"half_magic", ""},
	{"hello_auxiliary", CT_WIRE_MAGIC
	 " CHALLENGE REFUSED(0 rank 2 (pid 77 on host h) has no first connection, so it cannot open another one) "},
	{"hello_observer", CT_WIRE_MAGIC " CHALLENGE WELCOME(0) 1:OK "},
	{"hello_other_run",
	 CT_WIRE_MAGIC " CHALLENGE REFUSED(0 port 0 serves run \"fuzz\" of rank 0 (pid 1 on host h), not run \"x\") "},
	{"hello_ready_bye", CT_WIRE_MAGIC " CHALLENGE WELCOME(0) 1:OK "},
	{"hello_wrong_token", CT_WIRE_MAGIC " CHALLENGE REFUSED(2 wrong token) "},
	{"http", "closed"},
	{"huge", JOINED "closed"},
	{"nul_in_key", JOINED "closed"},
	{"unknown_op", JOINED "closed"},
	{"values", JOINED "1:OK 2:OK \"v\" 3:OK 4:OK 7:OK 8:NOT_FOUND "},
	{"waits", JOINED "4:OK 2:OK \"x\" 6:OK 5:OK "},
};

static struct ct_str answers;
static size_t value_len; /* of the value that follows the last frame separately */

static void add_frame(const uint8_t *p, size_t n)
{
	struct ct_wire_frame f;
	struct ct_wire_reader r;
	struct ct_failure x;
	char reason[256];

	assert_int_equal(value_len, 0);
	assert_true(n >= CT_WIRE_HEADER_LEN);
	ct_wire_decode_header(p, &f);
	value_len = f.len - (n - CT_WIRE_HEADER_LEN);
	f.len -= (uint32_t)value_len;
	f.body = p + CT_WIRE_HEADER_LEN;
	r = ct_wire_reader(&f);
	switch (f.op) {
	case CT_WIRE_CHALLENGE:
		ct_str_add(&answers, "CHALLENGE ");
		break;
	case CT_WIRE_WELCOME:
		ct_str_addf(&answers, "WELCOME(%u) ", ct_wire_u32(&r));
		break;
	case CT_WIRE_REFUSED:
		ct_str_addf(&answers, "REFUSED(%u", ct_wire_u8(&r));
		ct_wire_str(&r, reason, sizeof(reason));
		ct_str_addf(&answers, " %s) ", reason);
		break;
	case CT_WIRE_REPLY:
		ct_str_addf(&answers, "%d:%s ", (int)f.tag, ct_status_name((enum ct_status)f.status));
		break;
	case CT_WIRE_FAILED:
		assert_true(ct_wire_get_failure(&f, &x));
		ct_str_addf(&answers, "FAILED(%d %s %d %d %d) ", x.rank, ct_status_name((enum ct_status)x.status),
			    (int)x.at.phase, (int)x.at.step, (int)x.at.collective);
		break;
	default:
		fail_msg("the server has sent operation %u", f.op);
	}
}

/* Record what the server sends. These functions replace those of the store. */
void __real_ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b);
void __wrap_ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b);
void __wrap_ct__srv_conn_send(struct ct_srv_conn *c, struct ct_blob *b)
{
	if (value_len > 0) {
		assert_int_equal(b->len, value_len);
		ct_str_addf(&answers, "\"%.*s\" ", (int)b->len, (const char *)b->data);
		value_len = 0;
	} else if (b->len == CT_WIRE_MAGIC_LEN) {
		ct_str_addf(&answers, "%.*s ", CT_WIRE_MAGIC_LEN, (const char *)b->data);
	} else {
		add_frame(b->data, b->len);
	}
	__real_ct__srv_conn_send(c, b);
}

void __real_ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b);
void __wrap_ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b);
void __wrap_ct__srv_conn_send_frame(struct ct_srv_conn *c, struct ct_str *b)
{
	add_frame((const uint8_t *)b->s, b->len);
	__real_ct__srv_conn_send_frame(c, b);
}

static void test_answers(void **state)
{
	int n_wrong = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(inputs); i++) {
		char *path = ct_path_join(CORPUS, inputs[i].name), *data;
		size_t n;

		assert_ok(ct_file_read(path, 4096, &data, &n));
		ct_str_clear(&answers);
		if (store_input((const uint8_t *)data, n) < 0) {
			ct_str_add(&answers, "closed");
			ct_error_clear();
		}
		if (strcmp(ct_str_text(&answers), inputs[i].answers) != 0) {
			print_error("%s: answers: %s\nexpected: %s\n", inputs[i].name, ct_str_text(&answers),
				    inputs[i].answers);
			n_wrong++;
		}
		ct_free(data);
		ct_free(path);
	}
	ct_str_release(&answers);
	assert_int_equal(n_wrong, 0);
}

static void test_all_are_listed(void **state)
{
	char **names;
	size_t n;

	(void)state;
	assert_ok(ct_dir_list(CORPUS, &names, &n));
	assert_int_equal(n, CT_ARRAY_LEN(inputs));
	for (size_t i = 0; i < n; i++)
		assert_string_equal(names[i], inputs[i].name);
	ct_dir_list_free(names, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_all_are_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
