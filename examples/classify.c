/* Classifies images with libctrain_infer, each in its own thread: classify MODEL.safetensors IMAGE.ppm... (binary, 8 bits) */
#include <ctrain_infer.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_IMAGES 16

static ctrain_model *model; /* of all threads */

/* Returns NULL if it fails. */
static void *classify(void *path)
{
	const struct ctrain_info *info = ctrain_model_info(model);
	struct ctrain_error error = {CTRAIN_FILE, "cannot read it as a binary PPM file"};
	struct ctrain_image image = {0};
	ctrain_session *session = NULL; /* of this thread */
	FILE *file = fopen(path, "rb");
	float *p = calloc((size_t)info->outputs, sizeof(float)), best[3];
	uint8_t *rgb = NULL;
	int label[3], ok;

	if (file && fscanf(file, "P6 %d %d 255", &image.width, &image.height) == 2 && fgetc(file) != EOF)
		image.rgb = rgb = calloc((size_t)image.width * (size_t)image.height, 3);
	ok = p && rgb && fread(rgb, 3 * (size_t)image.width, (size_t)image.height, file) == (size_t)image.height &&
	     ctrain_session_open(model, 1, 1, &session, &error) == CTRAIN_OK && ctrain_predict_rgb(session, &image, 1, p, &error) == CTRAIN_OK;
	if (ok) {
		ctrain_softmax(p, info->outputs);
		ctrain_top_k(p, info->outputs, 3, label, best);
	} else {
		fprintf(stderr, "%s: %s\n", (char *)path, error.message);
	}
	for (int i = 0; ok && i < 3 && i < info->outputs; i++)
		if (info->n_classes)
			printf("%s:  %6.2f %%  %s\n", (char *)path, 100 * best[i], info->classes[label[i]]);
		else
			printf("%s:  %6.2f %%  class %d\n", (char *)path, 100 * best[i], label[i]);
	ctrain_session_close(session);
	free(p);
	free(rgb);
	return (file && fclose(file) != 0) || !ok ? NULL : path;
}

int main(int argc, char **argv)
{
	struct ctrain_error error = {CTRAIN_ARGUMENT, "usage: classify MODEL.safetensors IMAGE.ppm... (at most 16 images)"};
	const int images = argc - 2;
	pthread_t threads[MAX_IMAGES];
	void *result;
	int n = 0, failed = images < 1 || images > MAX_IMAGES || ctrain_model_open(argv[1], &model, &error) != CTRAIN_OK;

	if (failed)
		fprintf(stderr, "%s\n", error.message);
	while (!failed && n < images && pthread_create(&threads[n], NULL, classify, argv[n + 2]) == 0)
		n++;
	failed |= n < images;
	for (int i = 0; i < n; i++)
		failed |= pthread_join(threads[i], &result) != 0 || !result;
	ctrain_model_close(model);
	return failed;
}
