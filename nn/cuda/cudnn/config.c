/* A configuration is an engine of cuDNN with values for its knobs. cuDNN gives it as a descriptor, which is read into a
 * string so that it can be stored, and a descriptor is made from the string in a later run. Both directions keep the
 * order of the knobs. The string comes from a file, so it is parsed strictly; whether cuDNN has this configuration for
 * a graph is found out when it is finalized. Descriptors that cuDNN fills in must exist before the call, hence
 * MAX_KNOBS of them. */
#include "nn/cuda/cudnn/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/cuda/cudnn/descriptor.h"

enum { MAX_KNOBS = 24 };

struct knob {
	cudnnBackendKnobType_t type;
	int64_t value;
};

static enum ct_status read_engine(cudnnBackendDescriptor_t config, int64_t *index)
{
	cudnnBackendDescriptor_t engine;
	int64_t n = 0;
	enum ct_status st;

	CT_TRY(ct__cudnn_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
	st = ct__cudnn_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine,
			   "reading the engine of a configuration");
	if (st == CT_OK)
		st = ct__cudnn_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, index,
				   "reading the index of an engine");
	ct__cudnn_destroy(engine);
	return st;
}

static enum ct_status read_knob(cudnnBackendDescriptor_t d, struct knob *out)
{
	int64_t n = 0;

	CT_TRY(ct__cudnn_get(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n, &out->type,
			     "reading the type of a knob"));
	return ct__cudnn_get(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &out->value,
			     "reading the value of a knob");
}

/* choices: MAX_KNOBS descriptors that receive the knobs. */
static enum ct_status read_knobs(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *choices, struct knob *knobs,
				 int64_t *n)
{
	CT_TRY(ct__cudnn_get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, n,
			     choices, "reading the knobs of a configuration"));
	if (*n > MAX_KNOBS)
		return CT_FAIL(CT_UNSUPPORTED, "cuDNN: a configuration has %lld knobs", (long long)*n);
	for (int64_t i = 0; i < *n; i++)
		CT_TRY(read_knob(choices[i], &knobs[i]));
	return CT_OK;
}

static enum ct_status create_all(cudnnBackendDescriptor_t *choices)
{
	for (int i = 0; i < MAX_KNOBS; i++)
		CT_TRY(ct__cudnn_create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choices[i]));
	return CT_OK;
}

static void destroy_all(cudnnBackendDescriptor_t *choices)
{
	for (int i = 0; i < MAX_KNOBS; i++)
		ct__cudnn_destroy(choices[i]);
}

enum ct_status ct__cudnn_config_read(cudnnBackendDescriptor_t config, char text[CT__CUDNN_CONFIG_MAX], int64_t *engine)
{
	cudnnBackendDescriptor_t choices[MAX_KNOBS] = {NULL};
	struct knob knobs[MAX_KNOBS];
	int64_t n = 0;
	enum ct_status st = create_all(choices);

	if (st == CT_OK)
		st = read_engine(config, engine);
	if (st == CT_OK)
		st = read_knobs(config, choices, knobs, &n);
	destroy_all(choices);
	CT_TRY(st);
	int used = snprintf(text, CT__CUDNN_CONFIG_MAX, "%lld", (long long)*engine);
	for (int64_t i = 0; i < n; i++) {
		used += snprintf(text + used, (size_t)(CT__CUDNN_CONFIG_MAX - used), "%c%d=%lld", i ? ',' : ':',
				 (int)knobs[i].type, (long long)knobs[i].value);
		if (used >= CT__CUDNN_CONFIG_MAX)
			return CT_FAIL(CT_UNSUPPORTED, "cuDNN: a configuration has too many knobs");
	}
	return CT_OK;
}

/* Reads an integer and moves *s to the character after it. */
static bool parse_integer(const char **s, int64_t *out)
{
	char *end;

	if (**s != '-' && (**s < '0' || **s > '9')) /* strtoll skips spaces */
		return false;
	*out = strtoll(*s, &end, 10);
	const bool any = end > *s;
	*s = end;
	return any;
}

static enum ct_status parse(const char *text, int64_t *engine, struct knob *knobs, int64_t *n)
{
	const char *s = text;
	bool valid = parse_integer(&s, engine);

	*n = 0;
	for (char before = ':'; valid && *s; before = ',') {
		int64_t type;

		valid = *s++ == before && *n < MAX_KNOBS && parse_integer(&s, &type) && *s++ == '=' &&
			parse_integer(&s, &knobs[*n].value);
		if (valid)
			knobs[(*n)++].type = (cudnnBackendKnobType_t)type;
	}
	return valid ? CT_OK : CT_FAIL(CT_DATA, "\"%s\" is not a configuration of cuDNN", text);
}

static enum ct_status make_engine(cudnnBackendDescriptor_t e, cudnnBackendDescriptor_t graph,
				  cudnnBackendDescriptor_t properties, int64_t index)
{
	CT_TRY(ct__cudnn_set(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
	CT_TRY(ct__cudnn_set(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index));
	CT_TRY(ct__cudnn_set(e, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties));
	return ct__cudnn_finalize(e, "finalizing an engine");
}

static enum ct_status make_knobs(cudnnBackendDescriptor_t *choices, const struct knob *knobs, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		CT_TRY(ct__cudnn_set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
				     &knobs[i].type));
		CT_TRY(ct__cudnn_set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
				     &knobs[i].value));
		CT_TRY(ct__cudnn_finalize(choices[i], "finalizing a knob"));
	}
	return CT_OK;
}

static enum ct_status make_config(cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t engine,
				  const cudnnBackendDescriptor_t *choices, int64_t n)
{
	CT_TRY(ct__cudnn_set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine));
	if (n > 0)
		CT_TRY(ct__cudnn_set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
				     choices));
	return ct__cudnn_finalize(config, "finalizing a configuration");
}

enum ct_status ct__cudnn_config_make(const ct__cudnn_graph *g, cudnnBackendDescriptor_t properties, const char *text,
				     cudnnBackendDescriptor_t *out)
{
	cudnnBackendDescriptor_t choices[MAX_KNOBS] = {NULL}, engine = NULL, config = NULL;
	struct knob knobs[MAX_KNOBS];
	int64_t n = 0, index = 0;
	enum ct_status st;

	CT_TRY(parse(text, &index, knobs, &n));
	st = create_all(choices);
	if (st == CT_OK)
		st = ct__cudnn_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
	if (st == CT_OK)
		st = make_engine(engine, ct__cudnn_graph_descriptor(g), properties, index);
	if (st == CT_OK)
		st = make_knobs(choices, knobs, n);
	if (st == CT_OK)
		st = ct__cudnn_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config);
	if (st == CT_OK)
		st = make_config(config, engine, choices, n);
	ct__cudnn_destroy(engine);
	destroy_all(choices);
	if (st < 0) {
		ct__cudnn_destroy(config);
		return st;
	}
	*out = config;
	return CT_OK;
}
