/* YAML text -> a small document tree that knows where each value stands. yaml_events.c is the only file that includes
 * libyaml's header. Taken: one document of mappings, lists, scalars, anchors and aliases. Refused, each with its place:
 * text that is not UTF-8, control characters, several documents, tags, merge keys (<<), duplicate keys, keys that are
 * not plain names, recursive aliases, and what goes over the limits below. */
#ifndef CT_TRAINER_CONFIG_YAML_EVENTS_IMPL_H
#define CT_TRAINER_CONFIG_YAML_EVENTS_IMPL_H

#include "trainer/config/problems_impl.h"

#define CT_YAML_MAX_BYTES ((size_t)1 << 20)
#define CT_YAML_MAX_DEPTH 16
#define CT_YAML_MAX_NODES 8192 /* counted with every alias expanded */

enum ct_yaml_kind { CT_YAML_SCALAR, CT_YAML_LIST, CT_YAML_MAP };

struct ct_yaml_node {
	enum ct_yaml_kind kind;
	int line, column; /* from 1; columns count characters */
	char *text;       /* scalar: NUL-terminated UTF-8, may hold more NULs: see len */
	size_t len;
	bool quoted;                 /* scalar in quotes or a block scalar: "" is then a real empty text */
	size_t n;                    /* list: items; map: pairs */
	struct ct_yaml_node **items; /* list: [n]; map: [2n], key at 2i, value at 2i+1; shared by aliases */
	size_t weight;               /* nodes of the subtree, itself included, aliases expanded */
};

typedef struct ct_yaml ct_yaml;

/* `text` has a NUL after its len bytes; `name` stands in the messages. Problems, an empty text among them, are added to
 * p and leave *out NULL with CT_OK all the same. Only CT_NOMEM is returned as a failure. */
enum ct_status ct__yaml_parse(const char *text, size_t len, const char *name, struct ct_problems *p,
			      ct_yaml **out) CT_MUST_CHECK;
void ct__yaml_destroy(ct_yaml *y);
const struct ct_yaml_node *ct__yaml_root(const ct_yaml *y);

#endif
