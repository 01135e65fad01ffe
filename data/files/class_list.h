/* Class names from a text file. Either line i names class i, or the lines have the form "INDEX NAME" or "INDEX WNID
 * NAME" and together cover 0..n-1. Empty lines and lines that start with # are ignored. */
#ifndef CT_DATA_FILES_CLASS_LIST_H
#define CT_DATA_FILES_CLASS_LIST_H

#include "base/status.h"

struct ct_class_list {
	char **names;  /* [n] for display: control bytes are escaped */
	char **ids;    /* [n] what directories and label files call a class: the WNID, or the name */
	char **sorted; /* the ids in strcmp order, borrowed from ids */
	int *label;    /* [n] of sorted */
	int n;
};

/* CT_DATA "PATH:LINE: ..." */
enum ct_status ct_class_list_load(const char *path, struct ct_class_list *out) CT_MUST_CHECK;
enum ct_status ct_class_list_parse(const char *text, size_t n, const char *path,
				   struct ct_class_list *out) CT_MUST_CHECK;
/* Makes a list of classes whose names are their ids (copied). */
enum ct_status ct_class_list_from_ids(char *const *ids, int n, struct ct_class_list *out) CT_MUST_CHECK;
/* Finds the distinct ids, in strcmp order. Reorders ids. CT_DATA with path if there are too many. */
enum ct_status ct_class_list_collect(char **ids, size_t n, const char *path, struct ct_class_list *out) CT_MUST_CHECK;
void ct_class_list_release(struct ct_class_list *c);
/* -1 if no class has this id. */
int ct_class_list_find(const struct ct_class_list *c, const char *id);
/* An id of two classes, or NULL. If there is one, directories cannot be matched to classes. (Some class names of
 * ImageNet are not unique.) */
const char *ct_class_list_duplicate(const struct ct_class_list *c);

#endif
