/* libctrain_infer through its public header only. The argument is the program model_cases, which writes the models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "infer/api/ctrain_infer.h"

extern char **environ;

enum { ROWS = 3, MAX_OUTPUTS = 10 };
static const char *program;
static char dir[] = "/tmp/ctrain-test-infer-XXXXXX";

static const char *path_of(const char *name, const char *suffix)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s%s", dir, name, suffix);
	return path;
}

static void make_case(const char *name)
{
	char *const argv[] = {(char *)(uintptr_t)program, dir, (char *)(uintptr_t)name, NULL};
	int status;
	pid_t pid;

	if (access(path_of(name, ".safetensors"), F_OK) == 0)
		return;
	assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes;

	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	*n = (size_t)ftell(f);
	rewind(f);
	bytes = malloc(*n + 1);
	assert_int_equal(fread(bytes, 1, *n, f), *n);
	fclose(f);
	return bytes;
}

static ctrain_model *open_case(const char *name)
{
	struct ctrain_error error;
	ctrain_model *m;

	make_case(name);
	if (ctrain_model_open(path_of(name, ".safetensors"), &m, &error) != CTRAIN_OK)
		fail_msg("%s", error.message);
	assert_int_equal(error.code, CTRAIN_OK);
	return m;
}

static ctrain_session *open_session(const ctrain_model *m, int batch)
{
	struct ctrain_error error;
	ctrain_session *s;

	if (ctrain_session_open(m, batch, 1, &s, &error) != CTRAIN_OK)
		fail_msg("%s", error.message);
	return s;
}

/* The inputs of a case as float [N,C,H,W]. */
static float *read_input(const char *name, const struct ctrain_info *info)
{
	const size_t plane = (size_t)info->height * (size_t)info->width, c = (size_t)info->channels;
	size_t n;
	uint8_t *bytes = read_file(path_of(name, ".input"), &n);
	float *x;

	if (!info->images)
		return (float *)bytes;
	assert_int_equal(n, ROWS * c * plane);
	x = malloc(n * sizeof(float));
	for (size_t row = 0; row < ROWS; row++) {
		for (size_t k = 0; k < c; k++) {
			for (size_t i = 0; i < plane; i++)
				x[(row * c + k) * plane + i] = (float)bytes[(row * plane + i) * c + k] / 255;
		}
	}
	free(bytes);
	return x;
}

static void check_outputs(const char *name)
{
	ctrain_model *m = open_case(name);
	const struct ctrain_info *info = ctrain_model_info(m);
	ctrain_session *s = open_session(m, 2); /* the last batch is not full */
	float out[ROWS * MAX_OUTPUTS], *x = read_input(name, info), *want;
	struct ctrain_error error;
	size_t n;

	want = read_file(path_of(name, ".output"), &n);
	assert_int_equal(n, ROWS * (size_t)info->outputs * sizeof(float));
	if (ctrain_predict_float(s, x, ROWS, out, &error) != CTRAIN_OK)
		fail_msg("%s", error.message);
	for (int i = 0; i < ROWS * info->outputs; i++) {
		if (!(fabsf(out[i] - want[i]) <= 1e-5f * fmaxf(1, fabsf(want[i]))))
			fail_msg("%s: output %d is %g instead of %g", name, i, (double)out[i], (double)want[i]);
	}
	ctrain_session_close(s);
	ctrain_model_close(m);
	free(want);
	free(x);
}

static void test_outputs(void **state)
{
	static const char *const names[] = {"mlp",     "lenet", "convnet",  "resnet20",
					    "windows", "ranks", "last_add", "regression"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_outputs(names[i]);
}

static void test_info(void **state)
{
	ctrain_model *m = open_case("windows"), *r = open_case("regression");
	const struct ctrain_info *info = ctrain_model_info(m);

	(void)state;
	assert_string_equal(info->name, "layers");
	assert_int_equal(info->channels, 3);
	assert_int_equal(info->height, 23);
	assert_int_equal(info->width, 30);
	assert_int_equal(info->outputs, 5);
	assert_int_equal(info->n_classes, 5);
	assert_string_equal(info->classes[1], "one \"quoted\"");
	assert_int_equal(info->images, 1);
	assert_int_equal(info->regression, 0);
	info = ctrain_model_info(r);
	assert_int_equal(info->images, 0);
	assert_int_equal(info->regression, 1);
	assert_int_equal(info->n_classes, 0);
	assert_true(strlen(ctrain_version()) > 0);
	ctrain_model_close(m);
	ctrain_model_close(r);
	ctrain_model_close(NULL);
	ctrain_session_close(NULL);
}

/* An image with a gradient, and the same image with padded rows. */
struct picture {
	uint8_t plain[3 * 50 * 40], padded[(3 * 50 + 7) * 40];
	struct ctrain_image image, image_padded;
};

static void draw(struct picture *p)
{
	for (int y = 0; y < 40; y++) {
		for (int i = 0; i < 150; i++) {
			const uint8_t v = (uint8_t)(i * 5 + y * 3 + (i % 3) * 60);

			p->plain[y * 150 + i] = v;
			p->padded[y * 157 + i] = v;
		}
	}
	p->image = (struct ctrain_image){p->plain, 50, 40, 0};
	p->image_padded = (struct ctrain_image){p->padded, 50, 40, 157};
}

static void test_images(void **state)
{
	static struct picture p;
	static const char *const names[] = {"windows", "lenet"}; /* color and gray */

	(void)state;
	draw(&p);
	for (size_t k = 0; k < 2; k++) {
		ctrain_model *m = open_case(names[k]);
		const int outputs = ctrain_model_info(m)->outputs;
		ctrain_session *s = open_session(m, 4);
		const struct ctrain_image two[] = {p.image, p.image_padded};
		float out[2 * MAX_OUTPUTS], one[MAX_OUTPUTS], best[MAX_OUTPUTS], sum = 0;
		int label[MAX_OUTPUTS];

		assert_int_equal(ctrain_predict_rgb(s, two, 2, out, NULL), CTRAIN_OK);
		assert_memory_equal(out, out + outputs, (size_t)outputs * sizeof(float));
		assert_int_equal(ctrain_predict_rgb(s, two, 0, NULL, NULL), CTRAIN_OK);
		assert_int_equal(ctrain_predict_rgb(s, &two[1], 1, one, NULL), CTRAIN_OK);
		assert_memory_equal(out, one, (size_t)outputs * sizeof(float));
		ctrain_softmax(one, outputs);
		for (int i = 0; i < outputs; i++)
			sum += one[i];
		assert_true(fabsf(sum - 1) < 1e-5f);
		ctrain_top_k(one, outputs, 2, label, best);
		assert_true(best[0] >= best[1] && best[0] == one[label[0]]);
		ctrain_session_close(s);
		ctrain_model_close(m);
	}
}

/* Counts that do not fit write nothing outside of the arrays. */
static void test_counts(void **state)
{
	float x[3] = {1, 3, 2}, value[4];
	int label[4];

	(void)state;
	for (int n = -1; n <= 0; n++) {
		ctrain_softmax(NULL, n);
		ctrain_softmax(x, n);
		ctrain_top_k(NULL, n, 3, NULL, NULL);
		ctrain_top_k(x, 3, n, NULL, NULL);
	}
	assert_true(x[0] == 1 && x[1] == 3 && x[2] == 2);
	value[3] = -1;
	label[3] = -1;
	ctrain_top_k(x, 3, 1000, label, value);
	assert_true(label[0] == 1 && label[1] == 2 && label[2] == 0 && label[3] == -1);
	assert_true(value[0] == 3 && value[1] == 2 && value[2] == 1 && value[3] == -1);
}

struct job {
	const ctrain_model *model;
	const float *x;
	const struct ctrain_image *image;
	float out[ROWS * MAX_OUTPUTS], of_image[MAX_OUTPUTS];
	int code;
};

static void *work(void *arg)
{
	struct job *j = arg;
	ctrain_session *s = NULL;

	j->code = ctrain_session_open(j->model, 2, 2, &s, NULL);
	for (int i = 0; i < 5 && j->code == CTRAIN_OK; i++)
		j->code = ctrain_predict_float(s, j->x, ROWS, j->out, NULL);
	if (j->code == CTRAIN_OK)
		j->code = ctrain_predict_rgb(s, j->image, 1, j->of_image, NULL);
	ctrain_session_close(s);
	return NULL;
}

/* Two threads use one model at the same time, and get the results of one thread. */
static void test_two_threads(void **state)
{
	ctrain_model *m = open_case("resnet20");
	const struct ctrain_info *info = ctrain_model_info(m);
	float *x = read_input("resnet20", info);
	static struct picture p;
	static struct job jobs[3];
	pthread_t threads[2];

	(void)state;
	draw(&p);
	for (int i = 0; i < 3; i++)
		jobs[i] = (struct job){.model = m, .x = x, .image = &p.image};
	work(&jobs[2]);
	assert_int_equal(jobs[2].code, CTRAIN_OK);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(jobs[i].code, CTRAIN_OK);
		assert_memory_equal(jobs[i].out, jobs[2].out, ROWS * (size_t)info->outputs * sizeof(float));
		assert_memory_equal(jobs[i].of_image, jobs[2].of_image, (size_t)info->outputs * sizeof(float));
	}
	ctrain_model_close(m);
	free(x);
}

static void expect_error(int code, int want, const struct ctrain_error *e, const char *text)
{
	if (code != want || e->code != want || !strstr(e->message, text))
		fail_msg("code %d (in the error: %d) instead of %d: %s", code, e->code, want, e->message);
}

static void test_errors(void **state)
{
	const struct ctrain_image empty = {(const uint8_t *)"", 0, 5, 0};
	ctrain_model *m = open_case("regression"), *images = open_case("lenet");
	ctrain_session *s = NULL, *t = open_session(m, 1), *u = open_session(images, 1);
	float out[MAX_OUTPUTS];
	struct ctrain_error e;

	(void)state;
	expect_error(ctrain_model_open("/nowhere/x.safetensors", &m, &e), CTRAIN_FILE, &e, "/nowhere/x.safetensors");
	expect_error(ctrain_model_open("/", &m, &e), CTRAIN_DATA, &e, "/");
	expect_error(ctrain_model_open(NULL, &m, &e), CTRAIN_ARGUMENT, &e, "NULL");
	assert_int_equal(ctrain_model_open(NULL, &m, NULL), CTRAIN_ARGUMENT);
	expect_error(ctrain_model_open_memory("short", 5, &m, &e), CTRAIN_DATA, &e, "5 bytes");
	expect_error(ctrain_session_open(m, 0, 1, &s, &e), CTRAIN_ARGUMENT, &e, "batch (0)");
	expect_error(ctrain_session_open(m, 1, -1, &s, &e), CTRAIN_ARGUMENT, &e, "threads (-1)");
	expect_error(ctrain_predict_float(t, NULL, 1, out, &e), CTRAIN_ARGUMENT, &e, "NULL");
	expect_error(ctrain_predict_float(t, out, -1, out, &e), CTRAIN_ARGUMENT, &e, "negative");
	expect_error(ctrain_predict_rgb(t, &empty, 1, out, &e), CTRAIN_UNSUPPORTED, &e, "ctrain_predict_float");
	expect_error(ctrain_predict_rgb(u, &empty, 1, out, &e), CTRAIN_ARGUMENT, &e, "side");
	ctrain_session_close(t);
	ctrain_session_close(u);
	ctrain_model_close(m);
	ctrain_model_close(images);
}

/* Flipped bits and missing bytes are refused, or give another valid model; nothing is read outside of the memory (which
 * the address sanitizer checks). */
static void test_damaged(void **state)
{
	ctrain_model *m = open_case("ranks");
	struct ctrain_error e;
	size_t n, n_header;
	uint8_t *bytes = read_file(path_of("ranks", ".safetensors"), &n), *copy;

	(void)state;
	ctrain_model_close(m);
	n_header = 8 + bytes[0] + 256u * bytes[1];
	for (size_t cut = 0; cut < n; cut += cut < n_header ? 37 : 411) {
		copy = malloc(cut + 1);
		memcpy(copy, bytes, cut);
		assert_int_equal(ctrain_model_open_memory(copy, cut, &m, &e), CTRAIN_DATA);
		free(copy);
	}
	for (size_t i = 0; i < n_header; i += 3) {
		bytes[i] ^= 1u << (i % 7);
		if (ctrain_model_open_memory(bytes, n, &m, &e) == CTRAIN_OK)
			ctrain_model_close(m);
		else if (e.code != CTRAIN_DATA && e.code != CTRAIN_UNSUPPORTED)
			fail_msg("byte %zu: code %d: %s", i, e.code, e.message);
		bytes[i] ^= 1u << (i % 7);
	}
	assert_int_equal(ctrain_model_open_memory(bytes, n, &m, &e), CTRAIN_OK);
	free(bytes); /* the model has its own copy */
	assert_int_equal(ctrain_model_info(m)->outputs, 4);
	ctrain_model_close(m);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char *const argv[] = {(char *)(uintptr_t)"rm", (char *)(uintptr_t)"-r", dir, NULL};
	int status;
	pid_t pid;

	(void)state;
	return posix_spawnp(&pid, "rm", NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid ? status
													   : -1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outputs),     cmocka_unit_test(test_info),   cmocka_unit_test(test_images),
		cmocka_unit_test(test_two_threads), cmocka_unit_test(test_errors), cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_counts),
	};

	program = argc == 2 ? argv[1] : "model_cases";
	return cmocka_run_group_tests(tests, setup, teardown);
}
