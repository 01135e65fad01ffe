/* Class names from a text file. Either line i names class i, or the lines have the form "INDEX NAME" or "INDEX WNID
 * NAME" and together cover 0..n-1. Empty lines and lines that start with # are ignored. */
#ifndef CT_DATA_FILES_CLASS_LIST_H
#define CT_DATA_FILES_CLASS_LIST_H

#include "base/status.h"

struct ct_class_list {
	char **names;  /* [n] for display: control bytes are escaped */
	char **ids;    /* [n] identifiers of the classes in directories and label files: the WNID if given, else the
			* name */
	char **sorted; /* the ids in strcmp order, borrowed from ids */
	int *label;    /* [n] labels of the ids in `sorted` */
	int n;
};

/* Errors in the file are reported as CT_DATA with the message "PATH:LINE: ...". */
enum ct_status ct_class_list_load(const char *path, struct ct_class_list *out) CT_MUST_CHECK;
enum ct_status ct_class_list_parse(const char *text, size_t n, const char *path,
				   struct ct_class_list *out) CT_MUST_CHECK;
/* Creates a list of classes whose display names are equal to their ids. Copies the ids. */
enum ct_status ct_class_list_from_ids(char *const *ids, int n, struct ct_class_list *out) CT_MUST_CHECK;
/* Creates a list of the distinct ids, in strcmp order or, if they are decimal numbers without leading zeros, in the
 * order of these numbers. Reorders `ids`. Fails with CT_DATA if there are too many distinct ids; the message contains
 * `path`. */
enum ct_status ct_class_list_collect(char **ids, size_t n, bool numbers, const char *path,
				     struct ct_class_list *out) CT_MUST_CHECK;
void ct_class_list_release(struct ct_class_list *c);
/* Returns the label of the class with this id, or -1 if there is no such class. */
int ct_class_list_find(const struct ct_class_list *c, const char *id);
/* Returns an id that two classes share, or NULL if all ids are unique. With a shared id, directories cannot be matched
 * to classes. (Some class names of ImageNet are not unique.) */
const char *ct_class_list_duplicate(const struct ct_class_list *c);

#endif
