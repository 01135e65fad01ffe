/* Makes directories of images and packs them. */
#ifndef CT_TESTS_DATA_PACK_FIXTURE_H
#define CT_TESTS_DATA_PACK_FIXTURE_H

#include "data/pack/pack.h"
#include "tests/data/fixture.h"

/* Creates the file dir/name and any missing parent directories. */
void pack_write_file(const char *dir, const char *name, const void *p, size_t n);
void pack_write_text(const char *dir, const char *name, const char *text);
void pack_write_image(const char *dir, const char *name, int w, int h);
/* Packs src into dir/pattern, which must succeed. Release *r with ct_pack_report_release. */
void pack_ok(const char *dir, const char *src, const char *pattern, struct ct_pack_opts o, struct ct_pack_report *r);
/* Packs src into dir/pattern, which must fail with this status and a message that contains `says`. */
void pack_fails(const char *dir, const char *src, const char *pattern, struct ct_pack_opts o, enum ct_status status,
		const char *says);
/* Opens a training set of the kind that has this name in the registry. */
ct_dataset *pack_open_set(const char *kind, const char *dir, const char *path);

#endif
