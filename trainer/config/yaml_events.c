/* libyaml's events are turned into nodes by recursion, whose depth is limited. The document owns all nodes in one list,
 * and aliases share them, so freeing needs no reference counts. A file of a few lines can stand for a huge tree through
 * aliases of aliases; therefore each node has a weight with aliases expanded, and the sum is limited before anything
 * walks the tree. An anchor without a node is still being read, so an alias to it would be recursive. Bytes are checked
 * before libyaml sees them: later code can rely on valid UTF-8 without control characters. A problem adds a line to the
 * list, and CT_CONFIG only ends the reading; the caller sees CT_OK or CT_NOMEM. */
#include "trainer/config/yaml_events_impl.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define SHOWN_TEXT 60

struct anchor {
	char *name;
	struct ct_yaml_node *node; /* NULL while the node is being read, because an alias to it would be recursive */
};

struct ct_yaml {
	struct ct_yaml_node *root;
	struct ct_yaml_node **all; /* owner of every node */
	size_t n_all, cap_all;
};

struct reader {
	yaml_parser_t parser;
	const char *text, *name;
	size_t len;
	struct ct_problems *p;
	struct ct_yaml *doc;
	struct anchor *anchors;
	size_t n_anchors, cap_anchors;
	size_t weight; /* of all nodes so far, with aliases expanded */
};

static void problem(struct reader *r, int line, int column, const char *text)
{
	const struct ct_place at = {.name = r->name, .line = line, .column = column};

	ct__problems_add(r->p, &at, "%s", text);
}

static void problem_at(struct reader *r, yaml_mark_t mark, const char *fmt, ...) CT_PRINTF(3, 4);
static void problem_at(struct reader *r, yaml_mark_t mark, const char *fmt, ...)
{
	struct ct_str b = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&b, fmt, ap);
	va_end(ap);
	problem(r, (int)mark.line + 1, (int)mark.column + 1, ct_str_text(&b));
	ct_str_release(&b);
}

/* Finds the line and column of a byte. Columns count characters. */
static void locate(const struct reader *r, size_t at, int *line, int *column)
{
	*line = *column = 1;
	for (size_t i = 0; i < at && i < r->len; i++) {
		if (r->text[i] == '\n') {
			++*line;
			*column = 1;
		} else if (((unsigned char)r->text[i] & 0xC0) != 0x80) {
			++*column;
		}
	}
}

/* Returns the code point of a valid character of two or three bytes. */
static unsigned code_point(const char *p)
{
	const unsigned c = (unsigned char)p[0], second = (unsigned char)p[1] & 0x3Fu;

	return c < 0xE0 ? (c & 0x1Fu) << 6 | second : (c & 0xFu) << 12 | second << 6 | ((unsigned char)p[2] & 0x3Fu);
}

/* Returns true if all bytes are valid UTF-8 text. Otherwise reports the first invalid one. */
static bool check_bytes(struct reader *r)
{
	int line, column;

	for (size_t i = 0; i < r->len;) {
		unsigned char c = (unsigned char)r->text[i];
		char shown[5], why[96];
		size_t n = ct_escape_next(r->text + i, r->len - i, shown);

		if (c == '\t' || c == '\n' || c == '\r' || (c < 0x80 && shown[0] != '\\') || c == '\\' || n > 1) {
			i += n;
			continue;
		}
		locate(r, i, &line, &column);
		if (c < 0x80)
			snprintf(why, sizeof(why), "byte 0x%02x is not a text character; is this a binary file?", c);
		else if (ct_utf8_valid(r->text + i, c < 0xE0 ? 2 : 3))
			snprintf(why, sizeof(why), "invisible control character U+%04X", code_point(r->text + i));
		else
			snprintf(why, sizeof(why), "byte 0x%02x is not valid UTF-8; save the file as UTF-8", c);
		problem(r, line, column, why);
		return false;
	}
	return true;
}

/* Returns line number `line` (starting at 0), without the line break. */
static const char *line_text(const struct reader *r, size_t line, size_t *n)
{
	const char *s = r->text, *end = r->text + r->len, *stop;

	while (line > 0 && (stop = memchr(s, '\n', (size_t)(end - s)))) {
		s = stop + 1;
		line--;
	}
	stop = memchr(s, '\n', (size_t)(end - s));
	*n = (size_t)((stop ? stop : end) - s);
	return s;
}

/* Reports libyaml's error and shows the line. */
static enum ct_status syntax_problem(struct reader *r)
{
	const yaml_parser_t *y = &r->parser;
	int line = (int)y->problem_mark.line + 1, column = (int)y->problem_mark.column + 1;
	struct ct_str b = {0};
	size_t n, indent;
	const char *s;

	if (y->error == YAML_MEMORY_ERROR)
		return CT_FAIL(CT_NOMEM, "out of memory while reading %s", r->name);
	if (y->error == YAML_READER_ERROR)
		locate(r, y->problem_offset, &line, &column);
	s = line_text(r, (size_t)line - 1, &n);
	indent = strspn(s, " ");
	if (s[indent] == '\t') {
		ct_str_add(&b, "the line starts with a tab, but YAML must be indented with spaces");
	} else {
		ct_str_add(&b, y->problem ? y->problem : "invalid YAML");
		if (y->context && y->error != YAML_READER_ERROR)
			ct_str_addf(&b, " %s that starts at line %d, column %d", y->context,
				    (int)y->context_mark.line + 1, (int)y->context_mark.column + 1);
	}
	if (n > indent) {
		ct_str_add(&b, ", in \"");
		ct_str_add_escaped(&b, s + indent, n - indent, SHOWN_TEXT);
		ct_str_add(&b, "\"");
	}
	problem(r, line, column, ct_str_text(&b));
	ct_str_release(&b);
	return CT_CONFIG;
}

static enum ct_status next_event(struct reader *r, yaml_event_t *e)
{
	if (!yaml_parser_parse(&r->parser, e))
		return syntax_problem(r);
	return CT_OK;
}

static enum ct_status new_node(struct reader *r, const yaml_event_t *e, enum ct_yaml_kind kind,
			       struct ct_yaml_node **out)
{
	struct ct_yaml *d = r->doc;
	struct ct_yaml_node *n;

	CT_TRY_GROW(d->all, d->n_all, d->cap_all);
	CT_TRY_ALLOC(n = CT_NEW(struct ct_yaml_node));
	d->all[d->n_all++] = n;
	n->kind = kind;
	n->line = (int)e->start_mark.line + 1;
	n->column = (int)e->start_mark.column + 1;
	n->weight = 1;
	*out = n;
	return CT_OK;
}

/* Counts the nodes that a value adds to the document, and fails if there are too many. */
static enum ct_status add_weight(struct reader *r, const yaml_event_t *e, size_t weight)
{
	r->weight += weight;
	if (r->weight <= CT_YAML_MAX_NODES)
		return CT_OK;
	if (e->type == YAML_ALIAS_EVENT)
		problem_at(r, e->start_mark, "with alias *%s, the document has more than %d values",
			   (const char *)e->data.alias.anchor, CT_YAML_MAX_NODES);
	else
		problem_at(r, e->start_mark, "the file contains more than %d values", CT_YAML_MAX_NODES);
	return CT_CONFIG;
}

static struct anchor *find_anchor(struct reader *r, const char *name)
{
	for (size_t i = r->n_anchors; i > 0; i--) {
		if (strcmp(r->anchors[i - 1].name, name) == 0)
			return &r->anchors[i - 1];
	}
	return NULL;
}

/* Records that the next node has an anchor. *index is the index of the anchor, or SIZE_MAX if there is none. */
static enum ct_status open_anchor(struct reader *r, const yaml_char_t *name, size_t *index)
{
	struct anchor *a;

	*index = SIZE_MAX;
	if (!name)
		return CT_OK;
	CT_TRY_GROW(r->anchors, r->n_anchors, r->cap_anchors);
	a = &r->anchors[r->n_anchors];
	a->node = NULL;
	CT_TRY_ALLOC(a->name = ct_strdup((const char *)name));
	*index = r->n_anchors++;
	return CT_OK;
}

static enum ct_status follow_alias(struct reader *r, const yaml_event_t *e, struct ct_yaml_node **out)
{
	const char *name = (const char *)e->data.alias.anchor;
	struct anchor *a = find_anchor(r, name);

	if (!a || !a->node) {
		problem_at(r, e->start_mark, "alias *%.60s %s", name,
			   a ? "is used inside the value that it refers to"
			     : "is used before an anchor of that name is defined");
		return CT_CONFIG;
	}
	CT_TRY(add_weight(r, e, a->node->weight));
	*out = a->node;
	return CT_OK;
}

static enum ct_status refuse_tag(struct reader *r, const yaml_event_t *e, const yaml_char_t *tag)
{
	struct ct_str b = {0};

	if (!tag)
		return CT_OK;
	ct_str_add_escaped(&b, (const char *)tag, strlen((const char *)tag), SHOWN_TEXT);
	problem_at(r, e->start_mark, "tag %s is not allowed; the key determines the type of its value",
		   ct_str_text(&b));
	ct_str_release(&b);
	return CT_CONFIG;
}

static enum ct_status read_node(struct reader *r, const yaml_event_t *e, int depth, struct ct_yaml_node **out);

static enum ct_status read_next(struct reader *r, int depth, bool *end, yaml_event_type_t end_type,
				struct ct_yaml_node **out)
{
	yaml_event_t e;
	enum ct_status st;

	CT_TRY(next_event(r, &e));
	*end = e.type == end_type;
	st = *end ? CT_OK : read_node(r, &e, depth, out);
	yaml_event_delete(&e);
	return st;
}

static enum ct_status append(struct ct_yaml_node *n, size_t i, size_t *cap, struct ct_yaml_node *child)
{
	CT_TRY_GROW(n->items, i, *cap);
	n->items[i] = child;
	n->weight += child->weight;
	return CT_OK;
}

/* Reports keys that are not names, and duplicate keys. */
static enum ct_status check_key(struct reader *r, const struct ct_yaml_node *map, const struct ct_yaml_node *key)
{
	yaml_mark_t at = {.line = (size_t)key->line - 1, .column = (size_t)key->column - 1};
	struct ct_str b = {0};

	if (key->kind != CT_YAML_SCALAR || key->len == 0) {
		problem_at(r, at, "a key must be a name");
		return CT_CONFIG;
	}
	if (strcmp(key->text, "<<") == 0 && !key->quoted) {
		problem_at(r, at,
			   "merge keys (<<) are not supported; use `base: other.yaml` to inherit from another file");
		return CT_CONFIG;
	}
	for (size_t i = 0; i < map->n; i++) {
		const struct ct_yaml_node *old = map->items[2 * i];

		if (old->len != key->len || memcmp(old->text, key->text, key->len) != 0)
			continue;
		ct_str_add_escaped(&b, key->text, key->len, SHOWN_TEXT);
		problem_at(r, at, "duplicate key \"%s\"; it was first used in line %d", ct_str_text(&b), old->line);
		ct_str_release(&b);
		break;
	}
	return CT_OK;
}

static enum ct_status read_map(struct reader *r, int depth, struct ct_yaml_node *n)
{
	size_t cap = 0;

	for (;;) {
		struct ct_yaml_node *key, *value;
		bool end;

		CT_TRY(read_next(r, depth + 1, &end, YAML_MAPPING_END_EVENT, &key));
		if (end)
			return CT_OK;
		CT_TRY(check_key(r, n, key));
		CT_TRY(read_next(r, depth + 1, &end, YAML_NO_EVENT, &value));
		CT_TRY(append(n, 2 * n->n, &cap, key));
		CT_TRY(append(n, 2 * n->n + 1, &cap, value));
		n->n++;
	}
}

static enum ct_status read_list(struct reader *r, int depth, struct ct_yaml_node *n)
{
	size_t cap = 0;

	for (;;) {
		struct ct_yaml_node *item;
		bool end;

		CT_TRY(read_next(r, depth + 1, &end, YAML_SEQUENCE_END_EVENT, &item));
		if (end)
			return CT_OK;
		CT_TRY(append(n, n->n, &cap, item));
		n->n++;
	}
}

static enum ct_status read_scalar(struct reader *r, const yaml_event_t *e, struct ct_yaml_node *n)
{
	(void)r;
	n->len = e->data.scalar.length;
	n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	CT_TRY_ALLOC(n->text = ct_calloc(n->len + 1, 1));
	memcpy(n->text, e->data.scalar.value, n->len);
	return CT_OK;
}

static enum ct_status read_node(struct reader *r, const yaml_event_t *e, int depth, struct ct_yaml_node **out)
{
	const yaml_char_t *name = NULL, *tag = NULL;
	enum ct_yaml_kind kind = CT_YAML_SCALAR;
	struct ct_yaml_node *n;
	size_t anchor;

	if (e->type == YAML_ALIAS_EVENT)
		return follow_alias(r, e, out);
	if (e->type == YAML_SCALAR_EVENT) {
		name = e->data.scalar.anchor;
		tag = e->data.scalar.tag;
	} else if (e->type == YAML_MAPPING_START_EVENT) {
		kind = CT_YAML_MAP;
		name = e->data.mapping_start.anchor;
		tag = e->data.mapping_start.tag;
	} else {
		CT_ASSERT(e->type == YAML_SEQUENCE_START_EVENT);
		kind = CT_YAML_LIST;
		name = e->data.sequence_start.anchor;
		tag = e->data.sequence_start.tag;
	}
	if (depth > CT_YAML_MAX_DEPTH) {
		problem_at(r, e->start_mark, "nested more than %d levels deep", CT_YAML_MAX_DEPTH);
		return CT_CONFIG;
	}
	CT_TRY(refuse_tag(r, e, tag));
	CT_TRY(add_weight(r, e, 1));
	CT_TRY(new_node(r, e, kind, &n));
	CT_TRY(open_anchor(r, name, &anchor));
	CT_TRY(kind == CT_YAML_MAP    ? read_map(r, depth, n)
	       : kind == CT_YAML_LIST ? read_list(r, depth, n)
				      : read_scalar(r, e, n));
	if (anchor != SIZE_MAX)
		r->anchors[anchor].node = n;
	*out = n;
	return CT_OK;
}

/* Reads the events of a stream: stream start, document start, the value, document end, stream end. */
static enum ct_status read_stream(struct reader *r)
{
	enum ct_status st = CT_OK;
	bool in_document = false;

	for (bool end = false; !end && st == CT_OK;) {
		yaml_event_t e;

		CT_TRY(next_event(r, &e));
		end = e.type == YAML_STREAM_END_EVENT;
		if (e.type == YAML_DOCUMENT_START_EVENT && r->doc->root) {
			problem_at(r, e.start_mark, "a file may contain only one document");
			st = CT_CONFIG;
		} else if (e.type == YAML_DOCUMENT_START_EVENT || e.type == YAML_DOCUMENT_END_EVENT) {
			in_document = e.type == YAML_DOCUMENT_START_EVENT;
		} else if (in_document) {
			st = read_node(r, &e, 0, &r->doc->root);
		}
		yaml_event_delete(&e);
	}
	return st;
}

static void release_reader(struct reader *r)
{
	yaml_parser_delete(&r->parser);
	for (size_t i = 0; i < r->n_anchors; i++)
		ct_free(r->anchors[i].name);
	ct_free(r->anchors);
}

enum ct_status ct__yaml_parse(const char *text, size_t len, const char *name, struct ct_problems *p, ct_yaml **out)
{
	struct reader r = {.text = text, .len = len, .name = name, .p = p};
	enum ct_status st;

	*out = NULL;
	/* Some editors on Windows write a byte order mark; libyaml would count it as a column. */
	if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
		r.text += 3;
		r.len -= 3;
	}
	if (len > CT_YAML_MAX_BYTES) {
		problem(&r, 1, 1, "the file is larger than the limit of 1 MiB");
		return CT_OK;
	}
	if (!check_bytes(&r))
		return CT_OK;
	if (!yaml_parser_initialize(&r.parser))
		return CT_FAIL(CT_NOMEM, "out of memory while reading %s", name);
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)r.text, r.len);
	r.doc = CT_NEW(struct ct_yaml);
	st = r.doc ? read_stream(&r) : CT_NOMEM;
	if (st == CT_OK && !r.doc->root)
		problem(&r, 1, 1, "the file contains no configuration");
	release_reader(&r);
	if (st != CT_OK || !r.doc->root)
		ct__yaml_destroy(r.doc);
	else
		*out = r.doc;
	return st == CT_NOMEM ? CT_NOMEM : CT_OK;
}

void ct__yaml_destroy(ct_yaml *y)
{
	if (!y)
		return;
	for (size_t i = 0; i < y->n_all; i++) {
		ct_free(y->all[i]->text);
		ct_free(y->all[i]->items);
		ct_free(y->all[i]);
	}
	ct_free(y->all);
	ct_free(y);
}

const struct ct_yaml_node *ct__yaml_root(const ct_yaml *y)
{
	return y->root;
}
