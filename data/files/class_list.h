/* Names of classes from a text file: one a line, class i being line i, or "INDEX NAME" or "INDEX WNID NAME" lines that
 * together cover 0..n-1. Empty lines and lines that begin with # are passed over. */
#ifndef CT_DATA_FILES_CLASS_LIST_H
#define CT_DATA_FILES_CLASS_LIST_H

#include "base/status.h"

struct ct_class_list {
	char **names;  /* [n] for people: control bytes escaped */
	char **ids;    /* [n] what folders and label files call a class: the WNID, or the name as it stands */
	char **sorted; /* the same ids by bytes, borrowed from ids */
	int *label;    /* [n] of sorted */
	int n;
};

/* CT_DATA "PATH:LINE: ..." */
enum ct_status ct_class_list_load(const char *path, struct ct_class_list *out) CT_MUST_CHECK;
enum ct_status ct_class_list_parse(const char *text, size_t n, const char *path,
				   struct ct_class_list *out) CT_MUST_CHECK;
/* Copies of ids, each its own name. */
enum ct_status ct_class_list_from_ids(char *const *ids, int n, struct ct_class_list *out) CT_MUST_CHECK;
/* The different ones among ids, by bytes; reorders ids. CT_DATA naming path when they are too many. */
enum ct_status ct_class_list_collect(char **ids, size_t n, const char *path, struct ct_class_list *out) CT_MUST_CHECK;
void ct_class_list_release(struct ct_class_list *c);
/* -1: no class has this id. */
int ct_class_list_find(const struct ct_class_list *c, const char *id);
/* An id that two classes have, or NULL: only then can folders be told apart. (Names of ImageNet's classes repeat.) */
const char *ct_class_list_duplicate(const struct ct_class_list *c);

#endif
