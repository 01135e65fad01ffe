/* Makes WebDataset shards from image directories. Each image becomes two members: KEY.jpg (or KEY.png), and KEY.cls
 * with the label in decimal. Without short_side and seekable, the image bytes are copied. The shards depend only on the
 * input and the options, not on the number of threads: members are in ustar format with owner and time 0, keys are made
 * from paths, and samples are in the order of their paths or in a keyed random order. With `seekable`, JPEG files get
 * restart markers (ct_image_make_seekable), which change the bytes but not the pixels.
 *
 * Other files are also written to the directory of the shards. PREFIXpack.json describes what was packed; it is written
 * before the first shard and stays locked while packing runs. classes.txt has lines "index name". Each shard has an
 * index NAME.idx (DALI's wds2idx v1.2) and, if some of its files could not be used, NAME.left-out.tsv. These files are
 * written before their shard. The shard is written under a temporary name, synced and renamed, so that a file with its
 * final name is complete. Packing the same files again with the same options continues after the existing shards. An
 * attempt to pack other files, or to use other options, is rejected. */
#ifndef CT_DATA_PACK_PACK_H
#define CT_DATA_PACK_PACK_H

#include <stdint.h>

#include "base/status.h"

struct ct_pack_opts {
	/* A directory that has one sub-directory per class, with .jpg, .jpeg or .png files at any depth. With val_map:
	 * a directory of images without class directories. */
	const char *src;
	/* DIR/train-%06d.tar, or DIR/train-{000000..000007}.tar for exactly as many shards as the braces specify, all
	 * of about the same size. */
	const char *pattern;
	/* File with lines "name" or "index name ...". It must contain all class directories, and all classes in
	 * val_map. NULL: classes.txt next to the shards if it exists (because the training shards were packed before),
	 * else the names of the class directories in strcmp order. */
	const char *classes;
	/* File with lines "FILE CLASS" or "FILE LABEL" (separated by space, tab or comma), ImageNet's
	 * LOC_val_solution.csv, or a file with one class per line, in the order of the images. */
	const char *val_map;
	uint32_t shard_samples; /* samples per shard; 0: 1,000, unless shard_bytes is set */
	uint64_t shard_bytes;   /* limit on the size of a shard, computed from the image sizes in src; 0: none */
	/* > 0: images whose short side is longer than this are scaled down to this short side and written as JPEG
	 * without EXIF data. Other images are copied. */
	int short_side;
	int quality; /* quality of these JPEG files, 1..100; 0: 90 */
	bool seekable;
	bool shuffle;
	uint64_t seed;
	int threads; /* 0: all CPUs */
	/* Called after every image, by one thread at a time. */
	void (*progress)(void *user, uint64_t done, uint64_t total);
	void *user;
};

struct ct_pack_report {
	uint64_t n_samples;  /* images in the shards */
	uint64_t n_left_out; /* files that were skipped because they are not usable images; NAME.left-out.tsv has the
			      * reasons */
	uint64_t bytes;      /* total size of the shards */
	uint32_t n_classes, n_shards;
	uint32_t n_kept; /* shards that already existed */
	char *shards;    /* brace list of all shards */
};

/* Fails with CT_USAGE if options are invalid or shards made from other input exist, with CT_DATA if the directory does
 * not have the layout described above or a file changed during packing, and with CT_IO if, for example, the disk is
 * full. Finished shards are kept. */
enum ct_status ct_pack(const struct ct_pack_opts *opts, struct ct_pack_report *out) CT_MUST_CHECK;
void ct_pack_report_release(struct ct_pack_report *r);

#endif
