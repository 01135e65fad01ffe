/* Makes WebDataset shards of an image folder: for each image the members KEY.jpg (or KEY.png) and KEY.cls, the label as
 * digits. Without short_side and seekable the images' bytes are copied. The same input gives the same bytes, with any number of
 * threads: ustar with owner and time 0, keys from paths, samples in the order of their paths or of a keyed shuffle.
 * With `seekable` JPEG files get restart markers (ct_image_make_seekable): other bytes, the same pixels.
 *
 * Beside the shards: PREFIXpack.json (what was packed, made before the first shard and held locked meanwhile),
 * classes.txt ("index name"), for each shard its index NAME.idx (DALI's wds2idx v1.2), and NAME.left-out.tsv where files
 * of it could not be used. A shard is written under another name, synced and renamed, its companions before it: what
 * bears its final name is whole. Packing again goes on after the shards that are there, when files and options are the
 * same, and refuses otherwise. */
#ifndef CT_DATA_PACK_PACK_H
#define CT_DATA_PACK_PACK_H

#include <stdint.h>

#include "base/status.h"

struct ct_pack_opts {
	/* One folder a class, holding .jpg, .jpeg or .png files at any depth; with val_map: images without such
	 * folders. */
	const char *src;
	/* DIR/train-%06d.tar, or DIR/train-{000000..000007}.tar: exactly so many shards of about one size. */
	const char *pattern;
	/* Lines "name" or "index name ..."; folders and val_map must be among them. NULL: classes.txt beside the
	 * shards, if there is one (training shards were packed before), else the folders in bytewise order. */
	const char *classes;
	/* Lines "FILE CLASS" or "FILE LABEL" (blank, tab or comma between), ImageNet's LOC_val_solution.csv, or one
	 * class a line for the files in order. */
	const char *val_map;
	uint32_t shard_samples; /* per shard; 0: 1,000, unless shard_bytes */
	uint64_t shard_bytes;   /* of the images as they are in src; a shard ends before it would exceed this */
	/* > 0: images whose short side is longer become JPEG with this short side, without EXIF; others are copied. */
	int short_side;
	int quality; /* of these, 1..100; 0: 90 */
	bool seekable;
	bool shuffle;
	uint64_t seed;
	int threads; /* 0: all CPUs */
	/* Called by one thread at a time, after every image. */
	void (*progress)(void *user, uint64_t done, uint64_t total);
	void *user;
};

struct ct_pack_report {
	uint64_t n_samples;  /* in the shards */
	uint64_t n_left_out; /* files that are no image, and reasons in NAME.left-out.tsv */
	uint64_t bytes;      /* of the shards */
	uint32_t n_classes, n_shards;
	uint32_t n_kept; /* shards that were there already */
	char *shards;    /* brace list that names them all */
};

/* CT_USAGE: options that cannot be, or shards of other input are there. CT_DATA: the folder is not as described above,
 * or a file changed meanwhile. CT_IO: the disk is full ...; finished shards stay. */
enum ct_status ct_pack(const struct ct_pack_opts *opts, struct ct_pack_report *out) CT_MUST_CHECK;
void ct_pack_report_release(struct ct_pack_report *r);

#endif
