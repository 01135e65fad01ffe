/* Inside of data/: the images of an image folder. */
#ifndef CT_DATA_FORMATS_IMAGEFOLDER_SCAN_H
#define CT_DATA_FORMATS_IMAGEFOLDER_SCAN_H

#include <stdint.h>

#include "base/mem.h"

/* Images found below a folder. */
struct ct_folder_images {
	struct ct_str paths; /* relative to the folder, each with a NUL behind it */
	uint64_t *at;        /* [n] in paths */
	size_t n, cap;
	uint64_t n_others; /* files with other extensions */
};
void ct_folder_images_release(struct ct_folder_images *f);

/* Images (jpg, jpeg, png in any case) in root/sub and, where deep, in the folders below it, with `sub/` in front of
 * their paths. Sorted as torchvision does: by the path of the folder, then by name. Hidden names are passed over; links
 * are followed, but not into a folder that is being walked through already. */
enum ct_status ct_folder_scan(const char *root, const char *sub, bool deep, struct ct_folder_images *out) CT_MUST_CHECK;
/* Names of the folders in root, sorted by bytes, without hidden ones; owned, ct_dir_list_free. */
enum ct_status ct_folder_classes(const char *root, char ***names, size_t *n) CT_MUST_CHECK;

#endif
