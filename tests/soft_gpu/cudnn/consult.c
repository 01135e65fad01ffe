/* Makes each descriptor in the real library as well (see soft_cudnn.h). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/cudnn/cudnn_impl.h"

enum { MAX_JSON = 1 << 16, MAX_NOTES = 16, MAX_REFS = 128 };

static struct {
	pthread_once_t once;
	bool on;
	char device[MAX_JSON];
	cudnnStatus_t (*create)(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
	cudnnStatus_t (*destroy)(cudnnBackendDescriptor_t);
	cudnnStatus_t (*set)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
			     int64_t, const void *);
	cudnnStatus_t (*get)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
			     int64_t, int64_t *, void *);
	cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t);
	void (*last_error)(char *, size_t);
	size_t (*version)(void);
} real = {.once = PTHREAD_ONCE_INIT};

/* The leak sanitizer, where there is one: the real library never frees all it has. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void begin_real(void)
{
	if (__lsan_disable)
		__lsan_disable();
}

static cudnnStatus_t end_real(cudnnStatus_t st)
{
	if (__lsan_enable)
		__lsan_enable();
	return st;
}

#define REAL(call) (begin_real(), end_real(call))

static void *symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		soft_gpu_fail("cudnn: SOFT_CUDNN_REAL has no %s", name);
	return p;
}

/* JSON, or the path of a file. */
static void read_device(const char *value)
{
	FILE *f;

	if (value[strspn(value, " \t\r\n")] == '{') {
		snprintf(real.device, sizeof(real.device), "%s", value);
		return;
	}
	f = fopen(value, "r");
	if (!f || fread(real.device, 1, sizeof(real.device) - 1, f) == 0)
		soft_gpu_fail("cudnn: SOFT_CUDNN_DEVICE: %s cannot be read", value);
	fclose(f);
}

static void open_real(void)
{
	const char *path = getenv("SOFT_CUDNN_REAL"), *device = getenv("SOFT_CUDNN_DEVICE");
	void *library;

	if (!path || !*path)
		return;
	if (!device || !*device)
		soft_gpu_fail("cudnn: SOFT_CUDNN_REAL without SOFT_CUDNN_DEVICE");
	read_device(device);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		soft_gpu_fail("cudnn: SOFT_CUDNN_REAL: %s", dlerror());
	*(void **)&real.create = symbol(library, "cudnnBackendCreateDescriptor");
	*(void **)&real.destroy = symbol(library, "cudnnBackendDestroyDescriptor");
	*(void **)&real.set = symbol(library, "cudnnBackendSetAttribute");
	*(void **)&real.get = symbol(library, "cudnnBackendGetAttribute");
	*(void **)&real.finalize = symbol(library, "cudnnBackendFinalize");
	*(void **)&real.last_error = symbol(library, "cudnnGetLastErrorString");
	*(void **)&real.version = symbol(library, "cudnnGetVersion");
	if (real.create == cudnnBackendCreateDescriptor)
		soft_gpu_fail("cudnn: SOFT_CUDNN_REAL: %s is the stand-in itself", path);
	real.on = true;
}

bool soft__consults(void)
{
	pthread_once(&real.once, open_real);
	return real.on;
}

size_t soft__consult_version(void)
{
	return real.version();
}

/* The real status, with the real reason. */
static cudnnStatus_t passed(cudnnStatus_t st)
{
	char reason[400] = "";

	if (st) {
		real.last_error(reason, sizeof(reason));
		soft__refuse(st, "%s", reason);
	}
	return st;
}

cudnnStatus_t soft__consult_create(struct soft__descriptor *d)
{
	if (!soft__consults() || d->kind == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
		return CUDNN_STATUS_SUCCESS;
	return passed(REAL(real.create(d->kind, &d->real)));
}

void soft__consult_destroy(struct soft__descriptor *d)
{
	if (d->real)
		REAL(real.destroy(d->real));
	d->real = NULL;
}

cudnnStatus_t soft__consult_set(struct soft__descriptor *d, cudnnBackendAttributeName_t name,
				cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	cudnnBackendDescriptor_t refs[MAX_REFS];

	if (!d->real || name == CUDNN_ATTR_DEVICEPROP_DEVICE_ID)
		return CUDNN_STATUS_SUCCESS;
	if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return passed(REAL(real.set(d->real, name, type, n, values)));
	if (n > MAX_REFS)
		soft_gpu_fail("cudnn: %lld descriptors in an attribute", (long long)n);
	for (int64_t i = 0; i < n; i++)
		refs[i] = soft__live(((const cudnnBackendDescriptor_t *)values)[i], "cudnnBackendSetAttribute")->real;
	return passed(REAL(real.set(d->real, name, type, n, refs)));
}

cudnnStatus_t soft__consult_finalize(struct soft__descriptor *d)
{
	cudnnStatus_t st = CUDNN_STATUS_SUCCESS;

	if (!d->real)
		return CUDNN_STATUS_SUCCESS;
	if (d->kind == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR && !d->device.by_json)
		st = REAL(real.set(d->real, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
				   (int64_t)strlen(real.device) + 1, real.device));
	return passed(st ? st : REAL(real.finalize(d->real)));
}

/* Notes as bits. */
static cudnnStatus_t read_notes(cudnnBackendDescriptor_t engine, cudnnBackendAttributeName_t name,
				cudnnBackendAttributeType_t type, unsigned *bits)
{
	int notes[MAX_NOTES];
	int64_t n = 0;
	cudnnStatus_t st = REAL(real.get(engine, name, type, MAX_NOTES, &n, notes));

	*bits = 0;
	for (int64_t i = 0; !st && i < n && i < MAX_NOTES; i++)
		*bits |= 1u << notes[i];
	return st;
}

static cudnnStatus_t read_engine(cudnnBackendDescriptor_t engine, struct soft__engine *out)
{
	int64_t n = 0;
	cudnnStatus_t st = REAL(real.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &out->index));

	if (!st)
		st = read_notes(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &out->numerical);
	if (!st)
		st = read_notes(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &out->behavior);
	return st;
}

cudnnStatus_t soft__consult_notes(struct soft__descriptor *engine)
{
	return passed(read_engine(engine->real, &engine->engine));
}

cudnnStatus_t soft__consult_engine(struct soft__descriptor *config, struct soft__descriptor *engine)
{
	int64_t n = 0;

	if (!config->real)
		return CUDNN_STATUS_SUCCESS;
	return passed(REAL(real.get(config->real, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
				    &engine->real)));
}

cudnnStatus_t soft__consult_knobs(struct soft__descriptor *config, int64_t room, int64_t *n,
				  cudnnBackendDescriptor_t *knobs)
{
	cudnnBackendDescriptor_t refs[MAX_REFS];
	int64_t one = 0;
	cudnnStatus_t st;

	room = room < MAX_REFS ? room : MAX_REFS;
	for (int64_t i = 0; i < room; i++)
		refs[i] = soft__live(knobs[i], "cudnnBackendGetAttribute")->real;
	st = REAL(real.get(config->real, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, n,
			   refs));
	for (int64_t i = 0; !st && i < room && i < *n; i++) {
		struct soft__descriptor *k = soft__live(knobs[i], "cudnnBackendGetAttribute");

		st = REAL(real.get(k->real, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
				   &k->knob.type));
		if (!st)
			st = REAL(real.get(k->real, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
					   &k->knob.value));
		k->is_final = true;
	}
	return passed(st);
}

/* What is known of the engine of a real configuration. */
static cudnnStatus_t engine_of(cudnnBackendDescriptor_t config, struct soft__engine *out)
{
	cudnnBackendDescriptor_t engine;
	int64_t n = 0;
	cudnnStatus_t st = REAL(real.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));

	if (st)
		return st;
	st = REAL(real.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
	if (!st)
		st = read_engine(engine, out);
	REAL(real.destroy(engine));
	return st;
}

cudnnStatus_t soft__consult_results(struct soft__descriptor *h, int64_t room, int64_t *n,
				    cudnnBackendDescriptor_t *configs)
{
	cudnnBackendDescriptor_t *refs = calloc((size_t)room + 1, sizeof(*refs));
	cudnnStatus_t st;

	if (!refs)
		return soft__refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
	for (int64_t i = 0; configs && i < room; i++)
		refs[i] = soft__live(configs[i], "cudnnBackendGetAttribute")->real;
	*n = 0;
	st = REAL(real.get(h->real, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, n,
			   configs ? refs : NULL));
	for (int64_t i = 0; !st && configs && i < room && i < *n; i++)
		st = engine_of(refs[i], &soft__live(configs[i], "cudnnBackendGetAttribute")->engine);
	free(refs);
	return passed(st);
}

cudnnStatus_t soft__consult_workspace(struct soft__descriptor *plan, int64_t *bytes)
{
	int64_t n = 0;

	return passed(
		REAL(real.get(plan->real, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, bytes)));
}
