/* Classifies each image in a separate thread: classify_threads MODEL.safetensors IMAGE.ppm... (binary, 8 bits)
 * The threads share the model. Each has its own session, which computes with one OpenMP thread. */
#include <ctrain_infer.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static ctrain_model *model; /* of all threads */

/* Returns NULL if it fails. It does not call errx, because other threads may still use the model. */
static void *classify(void *path)
{
	const struct ctrain_info *info = ctrain_model_info(model);
	struct ctrain_error error = {CTRAIN_FILE, "cannot read it as a binary PPM file"};
	ctrain_session *session = NULL; /* of this thread */
	FILE *file = fopen(path, "rb");
	float *p = calloc((size_t)info->outputs, sizeof(float)), best[3];
	uint8_t *rgb = NULL;
	int w, h, label[3];

	if (file && fscanf(file, "P6 %d %d 255", &w, &h) == 2 && w > 0 && h > 0 && fgetc(file) != EOF)
		rgb = calloc((size_t)w * (size_t)h, 3);
	const int ok = p && rgb && fread(rgb, 3 * (size_t)w, (size_t)h, file) == (size_t)h &&
		       !ctrain_session_open(model, 1, 1, &session, &error) &&
		       !ctrain_predict_rgb(session, &(struct ctrain_image){rgb, w, h, 0}, 1, p, &error);
	if (ok) {
		ctrain_softmax(p, info->outputs);
		ctrain_top_k(p, info->outputs, 3, label, best);
	} else {
		warnx("%s: %s", (char *)path, error.message);
	}
	for (int k = 0; ok && k < 3 && k < info->outputs; k++)
		if (info->n_classes)
			printf("%s:  %6.2f %%  %s\n", (char *)path, 100 * best[k], info->classes[label[k]]);
		else
			printf("%s:  %6.2f %%  class %d\n", (char *)path, 100 * best[k], label[k]);
	ctrain_session_close(session);
	free(p);
	free(rgb);
	if (file)
		fclose(file);
	return ok ? path : NULL;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		errx(1, "usage: classify_threads MODEL.safetensors IMAGE.ppm...");
	struct ctrain_error error;
	if (ctrain_model_open(argv[1], &model, &error))
		errx(1, "%s", error.message);
	pthread_t *threads = calloc((size_t)argc, sizeof(*threads));
	int n = 2, failed = 0;
	while (threads && n < argc && pthread_create(&threads[n], NULL, classify, argv[n]) == 0)
		n++;
	for (int i = 2; i < n; i++) {
		void *result;

		failed |= pthread_join(threads[i], &result) != 0 || !result;
	}
	free(threads);
	ctrain_model_close(model);
	if (n < argc)
		errx(1, "%s: cannot start a thread", argv[n]);
	return failed;
}
