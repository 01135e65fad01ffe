/* Makes WebDataset shards from image directories. Each image becomes two members: KEY.jpg (or KEY.png), and KEY.cls
 * with the label in decimal. Without short_side and seekable, the image bytes are copied. The same input gives the same
 * bytes for any number of threads: ustar with owner and time 0, keys from paths, samples in the order of their paths or
 * in a keyed random order. With `seekable`, JPEG files get restart markers (ct_image_make_seekable): other bytes, the
 * same pixels.
 *
 * Other files in the same directory: PREFIXpack.json (what was packed; written before the first shard and locked
 * meanwhile), classes.txt ("index name"), for each shard its index NAME.idx (DALI's wds2idx v1.2), and
 * NAME.left-out.tsv if some of its files could not be used. A shard is written under a temporary name, synced and
 * renamed, after its other files; a file with its final name is complete. Packing again continues after the existing
 * shards if files and options are the same, and is refused otherwise. */
#ifndef CT_DATA_PACK_PACK_H
#define CT_DATA_PACK_PACK_H

#include <stdint.h>

#include "base/status.h"

struct ct_pack_opts {
	/* One directory per class with .jpg, .jpeg or .png files at any depth; with val_map: images without class
	 * directories. */
	const char *src;
	/* DIR/train-%06d.tar, or DIR/train-{000000..000007}.tar: exactly that many shards of about the same size. */
	const char *pattern;
	/* Lines "name" or "index name ..."; must contain the directories and the classes of val_map. NULL:
	 * classes.txt next to the shards if it exists (training shards were packed before), else the directories in
	 * strcmp order. */
	const char *classes;
	/* Lines "FILE CLASS" or "FILE LABEL" (separated by space, tab or comma), ImageNet's LOC_val_solution.csv, or
	 * one class per line for the files in order. */
	const char *val_map;
	uint32_t shard_samples; /* per shard; 0: 1,000, unless shard_bytes */
	uint64_t shard_bytes;   /* of the images in src; a shard ends before it would exceed this */
	/* > 0: images with a longer short side become JPEG with this short side, without EXIF; others are copied. */
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
	uint64_t n_left_out; /* skipped files that are not usable images; reasons are in NAME.left-out.tsv */
	uint64_t bytes;      /* of the shards */
	uint32_t n_classes, n_shards;
	uint32_t n_kept; /* shards that existed already */
	char *shards;    /* brace list of all shards */
};

/* CT_USAGE: invalid options, or existing shards of other input. CT_DATA: the directory is not as described above, or
 * a file changed meanwhile. CT_IO: the disk is full, and so on; finished shards stay. */
enum ct_status ct_pack(const struct ct_pack_opts *opts, struct ct_pack_report *out) CT_MUST_CHECK;
void ct_pack_report_release(struct ct_pack_report *r);

#endif
