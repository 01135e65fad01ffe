/* The description of a model in a weights file. What can be parsed must be written as a text that gives the same
 * description, and its model must be built or refused. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "infer/description.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_LAYERS = 64 }; /* a graph with many layers takes long */

static void write_and_parse(const struct ct_description *d)
{
	struct ct_str first = {0}, second = {0};
	struct ct_description again;

	if (ct_description_write(d, &first) < 0 || ct_description_parse(ct_str_text(&first), "again", &again) < 0 ||
	    ct_description_write(&again, &second) < 0 || strcmp(first.s, second.s) != 0)
		__builtin_trap();
	ct_description_release(&again);
	ct_str_release(&first);
	ct_str_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = ct_strndup((const char *)data, size);
	struct ct_description d;
	ct_graph *g;

	if (!text)
		return 0;
	if (ct_description_parse(text, "fuzz", &d) < 0) {
		ct_error_clear();
		ct_free(text);
		return 0;
	}
	write_and_parse(&d);
	if (d.model.n_layers <= MAX_LAYERS && d.model.n_hidden <= MAX_LAYERS) {
		if (ct_model_build(&d.model, &g) == CT_OK)
			ct_graph_destroy(g);
		else
			ct_error_clear();
	}
	ct_description_release(&d);
	ct_free(text);
	return 0;
}
