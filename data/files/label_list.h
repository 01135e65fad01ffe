/* Lists of labels: a CSV file (data/files/csv.h) with one image per line, as other programs and competitions have them.
 * The first line names the columns. */
#ifndef CT_DATA_FILES_LABEL_LIST_H
#define CT_DATA_FILES_LABEL_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "data/files/class_list.h"

/* Names of columns; case, '-', '_' and spaces are ignored. NULL: found by its usual names (image,
 * file, filename, path, id ...; label, class, target ...; split, subset ...), or, if there are two columns and one of
 * them is known, the other one. */
struct ct_label_columns {
	const char *image, *label;
	const char *split; /* "none": ignore such a column */
};

enum ct_label_part { CT_LABEL_TRAIN, CT_LABEL_VAL, CT_LABEL_TEST, CT_LABEL_PARTS };

/* The strings point into `text` of the list. */
struct ct_label_row {
	char *image; /* not empty, relative, without "." and ".." */
	char *label; /* not empty */
	uint32_t line;
	enum ct_label_part part; /* CT_LABEL_TRAIN without a split column */
};

struct ct_label_list {
	char *text;
	struct ct_label_row *rows; /* [n] in the order of the file */
	size_t n, cap;
	size_t per_part[CT_LABEL_PARTS]; /* numbers of rows */
	char *image, *label, *split;     /* names of the columns; split is NULL if there is no such column */
	bool has_columns; /* the first line is that of a list; also set if the list is empty again because a row is
			     invalid */
};

/* Fails with CT_DATA and the message "PATH:LINE: ..." if a column cannot be found, or if a row is invalid. */
enum ct_status ct_label_list_load(const char *path, const struct ct_label_columns *columns,
				  struct ct_label_list *out) CT_MUST_CHECK;
/* The same for at most 100 rows in the first MiB of the file, to determine whether it is a list. *all: it has no other
 * rows. */
enum ct_status ct_label_list_load_start(const char *path, const struct ct_label_columns *columns,
					struct ct_label_list *out, bool *all) CT_MUST_CHECK;
/* The same as ct_label_list_load for text [len], which is followed by a NUL. Takes the text. */
enum ct_status ct_label_list_parse(char *text, size_t len, const char *path, const struct ct_label_columns *columns,
				   struct ct_label_list *out) CT_MUST_CHECK;
void ct_label_list_release(struct ct_label_list *l);

/* Returns whether the labels of all training rows are numbers. */
bool ct_label_list_has_numbers(const struct ct_label_list *l);
/* Removes whitespace and leading zeros of the label, if it is a number. */
void ct_label_row_remove_zeros(struct ct_label_row *row);
/* Creates the list of the classes of the training rows. If all labels are numbers, the classes are these numbers
 * without leading zeros, in their order; otherwise the classes are in strcmp order. */
enum ct_status ct_label_list_classes(struct ct_label_list *l, const char *path,
				     struct ct_class_list *out) CT_MUST_CHECK;

#endif
