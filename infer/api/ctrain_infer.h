/* libctrain_infer: applies models that ctrain has trained, on the CPU. A model is one file: the weights that `ctrain
 * export --out model.safetensors` writes, or model.safetensors of a checkpoint. docs/EXPORT.md has an example.
 *
 *   ctrain_model    the file in memory. It does not change, so any number of threads may use it.
 *   ctrain_session  what one computation needs. Only one thread at a time may use a session; use one per thread.
 *
 * Functions that can fail return CTRAIN_OK (0) or another code, and describe the failure in *error, which may be NULL.
 * The library has no global state, prints nothing, never calls exit, and reads no file but the model. It computes with
 * OpenMP threads: a call that computes sets the number of OpenMP threads of the calling thread. */
#ifndef CTRAIN_INFER_H
#define CTRAIN_INFER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ctrain_code {
	CTRAIN_OK = 0,
	CTRAIN_ARGUMENT = 1,    /* an argument is invalid */
	CTRAIN_FILE = 2,        /* the file cannot be opened or read */
	CTRAIN_DATA = 3,        /* the file is damaged, or does not describe its model */
	CTRAIN_UNSUPPORTED = 4, /* this version of the library or this machine cannot compute the model */
	CTRAIN_MEMORY = 5,      /* out of memory */
	CTRAIN_INTERNAL = 6     /* any other failure */
};

struct ctrain_error {
	int code;
	char message[500];
};

typedef struct ctrain_model ctrain_model;
typedef struct ctrain_session ctrain_session;

/* What a model expects and returns. All pointers are valid until ctrain_model_close. */
struct ctrain_info {
	const char *name;            /* for example "resnet18" */
	int channels, height, width; /* of the input */
	int outputs;                 /* number of classes, or of predicted values if `regression` is 1 */
	int regression;
	int images;                 /* 1: the input is an image, and ctrain_predict_rgb can prepare it */
	int n_classes;              /* outputs, or 0 if the names of the classes are unknown */
	const char *const *classes; /* [n_classes] in UTF-8 */
};

/* An image in memory: 8-bit RGB, row by row. */
struct ctrain_image {
	const uint8_t *rgb;
	int width, height;
	size_t stride; /* bytes from one row to the next; 0: 3 * width */
};

/* Returns the version of the library, for example "0.1.0". */
const char *ctrain_version(void);

int ctrain_model_open(const char *path, ctrain_model **out, struct ctrain_error *error);
/* Reads the contents of a file, bytes [n], which may be freed after the call. */
int ctrain_model_open_memory(const void *bytes, size_t n, ctrain_model **out, struct ctrain_error *error);
void ctrain_model_close(ctrain_model *model); /* no session may use it any more; NULL is allowed */
const struct ctrain_info *ctrain_model_info(const ctrain_model *model);

/* batch: the number of inputs that are computed together, at least 1; more inputs are computed in several batches.
 * threads: the number of threads that compute; 0: one per CPU. */
int ctrain_session_open(const ctrain_model *model, int batch, int threads, ctrain_session **out,
			struct ctrain_error *error);
void ctrain_session_close(ctrain_session *session); /* NULL is allowed */

/* Both functions compute n inputs and write the outputs to out [n, outputs]: the logits of the classes, or the
 * predicted values. The first call compiles the model.
 *
 * x: float [n, channels, height, width]; images with values from 0 to 1. The model normalizes them. */
int ctrain_predict_float(ctrain_session *session, const float *x, int n, float *out, struct ctrain_error *error);
/* images [n]: of any size. They are resized, cropped and, if the model has one channel, converted to gray, as in
 * evaluation by ctrain. */
int ctrain_predict_rgb(ctrain_session *session, const struct ctrain_image *images, int n, float *out,
		       struct ctrain_error *error);

/* Replaces the logits x [n] by probabilities. Does nothing if n is less than 1. */
void ctrain_softmax(float *x, int n);
/* Writes the indexes and values of the k largest elements of x [n], largest first: label and value [k]. If k is larger
 * than n, writes n of them. Does nothing if k or n is less than 1. */
void ctrain_top_k(const float *x, int n, int k, int *label, float *value);

#ifdef __cplusplus
}
#endif

#endif
