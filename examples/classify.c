/* Classifies images with libctrain_infer: classify MODEL.safetensors IMAGE.ppm... (binary, 8 bits) */
#include <ctrain_infer.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		errx(1, "usage: classify MODEL.safetensors IMAGE.ppm...");
	ctrain_model *model;
	ctrain_session *session;
	struct ctrain_error error;
	if (ctrain_model_open(argv[1], &model, &error) || ctrain_session_open(model, 1, 0, &session, &error))
		errx(1, "%s", error.message);
	const struct ctrain_info *info = ctrain_model_info(model);
	float *p = calloc((size_t)info->outputs, sizeof(float)), best[3];
	for (int i = 2; i < argc; i++) {
		int w, h, label[3];
		FILE *file = fopen(argv[i], "rb");

		if (!file || fscanf(file, "P6 %d %d 255", &w, &h) != 2 || w < 1 || h < 1 || fgetc(file) == EOF)
			errx(1, "%s: cannot read it as a binary PPM file", argv[i]);
		uint8_t *rgb = calloc((size_t)w * (size_t)h, 3);
		if (!p || !rgb || fread(rgb, 3 * (size_t)w, (size_t)h, file) != (size_t)h || fclose(file))
			errx(1, "%s: the file is truncated, or there is not enough memory", argv[i]);
		if (ctrain_predict_rgb(session, &(struct ctrain_image){rgb, w, h, 0}, 1, p, &error))
			errx(1, "%s: %s", argv[i], error.message);
		ctrain_softmax(p, info->outputs);
		ctrain_top_k(p, info->outputs, 3, label, best);
		for (int k = 0; k < 3 && k < info->outputs; k++)
			if (info->n_classes)
				printf("%s:  %6.2f %%  %s\n", argv[i], 100 * best[k], info->classes[label[k]]);
			else
				printf("%s:  %6.2f %%  class %d\n", argv[i], 100 * best[k], label[k]);
		free(rgb);
	}
	free(p);
	ctrain_session_close(session);
	ctrain_model_close(model);
}
