/* Classifies an image with libctrain_infer: classify MODEL.safetensors IMAGE.ppm (binary, 8 bits) */
#include <ctrain_infer.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
	struct ctrain_error error = {CTRAIN_FILE, "usage: classify MODEL.safetensors IMAGE.ppm"};
	struct ctrain_image image = {0};
	ctrain_session *session = NULL;
	ctrain_model *model = NULL;
	uint8_t *rgb = NULL;
	float *p = NULL, best[3];
	int label[3], failed = 1;

	if (file && fscanf(file, "P6 %d %d 255", &image.width, &image.height) == 2 && fgetc(file) != EOF)
		image.rgb = rgb = calloc((size_t)image.width * (size_t)image.height, 3);
	if (rgb && fread(rgb, 3 * (size_t)image.width, (size_t)image.height, file) == (size_t)image.height &&
	    ctrain_model_open(argv[1], &model, &error) == CTRAIN_OK &&
	    ctrain_session_open(model, 1, 0, &session, &error) == CTRAIN_OK) {
		const struct ctrain_info *info = ctrain_model_info(model);
		const int k = info->outputs < 3 ? info->outputs : 3;

		p = calloc((size_t)info->outputs, sizeof(float));
		failed = !p || ctrain_predict_rgb(session, &image, 1, p, &error) != CTRAIN_OK;
		if (!failed) {
			ctrain_softmax(p, info->outputs);
			ctrain_top_k(p, info->outputs, k, label, best);
		}
		for (int i = 0; !failed && i < k; i++)
			printf("%6.2f %%  %s (class %d)\n", 100 * best[i], info->n_classes ? info->classes[label[i]] : "", label[i]);
	}
	if (failed)
		fprintf(stderr, "%s\n", error.message);
	ctrain_session_close(session);
	ctrain_model_close(model);
	free(p);
	free(rgb);
	return (file && fclose(file) != 0) || failed;
}
