/* The strings with which ranks find each other: init URLs, Slurm node lists, rendezvous files. */
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/nodelist_impl.h"
#include "dist/rendezvous/rendezvous_file_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = ct_strndup((const char *)data, size), **names;
	struct ct_init_url url;
	struct ct_rendezvous_file m;
	size_t n;
	int count;

	if (!text)
		return 0;
	if (ct__init_url_parse(text, &url) == CT_OK && url.scheme != CT_INIT_ENV && url.scheme != CT_INIT_FILE) {
		char again[300];

		/* What was understood can be said again. */
		if (ct__init_url_make(again, sizeof(again), "tcp", url.host, url.port) < 0 ||
		    ct__init_url_parse(again, &url) < 0)
			__builtin_trap();
	}
	if (ct__nodelist_expand(text, 1000, &names, &n) == CT_OK)
		ct__nodelist_free(names, n);
	if (ct__countlist_at(text, 100, &count) < 0 || ct__rendezvous_file_parse(text, "fuzz", &m) < 0)
		ct_error_clear();
	ct_free(text);
	return 0;
}
