/* Finds the images of an image directory. */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_SCAN_H
#define CT_DATA_FORMATS_IMAGEFOLDER_SCAN_H

#include <stdint.h>

#include "base/mem.h"

/* Images found below a directory. */
struct ct_image_dir_images {
	struct ct_str paths; /* relative to the directory, NUL-terminated */
	uint64_t *at;        /* [n] offset of each path in `paths` */
	size_t n, cap;
	uint64_t n_others; /* files with other extensions */
};
void ct_image_dir_images_release(struct ct_image_dir_images *f);

/* Finds images (jpg, jpeg, png, ignoring case) in root/sub and, if `deep` is set, in its sub-directories. Paths start
 * with `sub/`. They are sorted as in torchvision: by directory, then by name. Hidden files and directories are ignored.
 * Symbolic links are followed, except links to a directory that is currently being scanned. */
enum ct_status ct_image_dir_scan(const char *root, const char *sub, bool deep,
				 struct ct_image_dir_images *out) CT_MUST_CHECK;
/* Does the same for each of the directories [n] in root, and for those below them, on several threads. `found` [n] is
 * zeroed by the caller, and released by the caller even on failure. */
enum ct_status ct_image_dir_scan_all(const char *root, char *const *directories, size_t n, int n_threads,
				     struct ct_image_dir_images *found) CT_MUST_CHECK;
/* Lists the directories in root in strcmp order, without hidden ones. The caller releases `names` with
 * ct_dir_list_free. */
enum ct_status ct_image_dir_classes(const char *root, char ***names, size_t *n) CT_MUST_CHECK;

#endif
