/* The list of labels of a flat directory of images: lines "FILE LABEL" or "FILE WNID". */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_MAP_IMPL_H
#define CT_DATA_FORMATS_IMAGEFOLDER_MAP_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/files/class_list.h"

struct ct_image_dir_line {
	char *file; /* points into `text` of the map */
	char *what; /* points into `text` of the map */
	int32_t label;
	bool taken;
};

struct ct_image_dir_skipped {
	char *file;               /* owned; escaped */
	const char *tag, *reason; /* string literals */
};

struct ct_image_dir_map {
	char *text;
	struct ct_image_dir_line *lines; /* [n], sorted by file */
	size_t n;
	struct ct_image_dir_skipped *skipped; /* [n_skipped] */
	size_t n_skipped, cap_skipped;
};
void ct__folder_map_release(struct ct_image_dir_map *m);

/* Finds val.txt or labels.txt in the directory. *path is owned by the caller; it is NULL if neither file exists. */
enum ct_status ct__folder_map_find(const char *root, char **path) CT_MUST_CHECK;
/* Loads a list of labels, which are numbers or class ids. If `classes` is empty, it is filled with the ids in strcmp
 * order. Errors in the file are reported as CT_DATA with the message "PATH:LINE: ...". */
enum ct_status ct__folder_map_load(const char *path, struct ct_class_list *classes,
				   struct ct_image_dir_map *out) CT_MUST_CHECK;
/* Returns the label of a file and marks the file as used. Returns -1 if the file is not in the list. */
int32_t ct__folder_map_take(struct ct_image_dir_map *m, const char *file);
/* tag and reason are string literals. */
enum ct_status ct__folder_map_skip(struct ct_image_dir_map *m, const char *file, const char *tag,
				   const char *reason) CT_MUST_CHECK;
/* Records as skipped every listed file that was not marked as used, because such a file does not exist. */
enum ct_status ct__folder_map_rest(struct ct_image_dir_map *m) CT_MUST_CHECK;

#endif
