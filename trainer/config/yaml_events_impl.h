/* Parses YAML into a small tree that contains the position of each value. yaml_events.c is the only file that includes
 * libyaml's header. The input is one document of mappings, lists, scalars, anchors and aliases. The following are
 * reported as errors, with their position: invalid UTF-8, control characters, several documents, tags, merge keys (<<),
 * duplicate keys, keys that are not plain names, recursive aliases, and documents that exceed the limits below. */
#ifndef CT_TRAINER_CONFIG_YAML_EVENTS_IMPL_H
#define CT_TRAINER_CONFIG_YAML_EVENTS_IMPL_H

#include "trainer/config/problems_impl.h"

#define CT_YAML_MAX_BYTES ((size_t)1 << 20)
#define CT_YAML_MAX_DEPTH 16
#define CT_YAML_MAX_NODES 8192 /* with all aliases expanded */

enum ct_yaml_kind { CT_YAML_SCALAR, CT_YAML_LIST, CT_YAML_MAP };

struct ct_yaml_node {
	enum ct_yaml_kind kind;
	int line, column; /* start at 1; columns count characters */
	char *text;       /* scalar: NUL-terminated UTF-8 of len bytes, which may include further NULs */
	size_t len;
	bool quoted;                 /* a quoted or block scalar; if empty, it is a string and not a missing value */
	size_t n;                    /* list: number of items; map: number of pairs */
	struct ct_yaml_node **items; /* list: [n]; map: [2n], with keys at 2i and values at 2i+1; aliases share nodes */
	size_t weight;               /* number of nodes in the subtree including this one, with aliases expanded */
};

typedef struct ct_yaml ct_yaml;

/* The len bytes of `text` must be followed by a NUL. Messages contain `name`. Problems, including an empty document,
 * are added to p; *out is then NULL, and the result is still CT_OK. If all problems are duplicate keys, *out is the
 * document nevertheless, so that its other mistakes can be reported, too. The only error that this function returns is
 * CT_NOMEM. */
enum ct_status ct__yaml_parse(const char *text, size_t len, const char *name, struct ct_problems *p,
			      ct_yaml **out) CT_MUST_CHECK;
void ct__yaml_destroy(ct_yaml *y);
const struct ct_yaml_node *ct__yaml_root(const ct_yaml *y);

#endif
