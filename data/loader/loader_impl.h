/* The internals of the loader. create.c: options and memory; loader.c: the ring, its threads and the order of
 * deliveries; rows.c: the contents of a row; bad.c: the list of bad samples. */
#ifndef CT_DATA_LOADER_LOADER_IMPL_H
#define CT_DATA_LOADER_LOADER_IMPL_H

#include <stdatomic.h>

#include "base/thread.h"
#include "data/loader/class_order.h"
#include "data/loader/loader.h"

/* A bad sample that was found while a row was being filled. It was candidate number `attempt` for that row. */
struct ct_bad_use {
	uint32_t row, attempt, sample;
};

/* A batch in the ring. The loader's lock protects the fields; the contents of a row belong to the thread that has taken
 * the row. The batch's own rows are followed by the rows of neighboring slices with which its first and last row are
 * mixed. */
struct ct_loader_slot {
	uint8_t *x;                /* NULL if rows are described */
	struct ct_image_row *rows; /* NULL if they are not */
	int32_t *labels, *labels_b;
	float *mix, *targets;
	uint32_t *samples;
	_Atomic uint8_t *pairs; /* number of filled rows of each pair */
	uint8_t *dropped;
	struct ct_loader_batch batch;
	size_t row_bytes;
	uint32_t first;  /* position of row 0 in the sample order of the epoch */
	uint32_t n_work; /* rows to fill, including those of neighboring slices */
	bool before;     /* the first neighboring row precedes row 0 */
	uint32_t done;   /* rows that are filled or were abandoned after a failure */
	bool failed;
	uint32_t failed_row;
	struct ct_error error; /* of failed_row, the first row that failed */
	/* Protected by the lock of the list of bad samples. */
	struct ct_bad_use *uses;
	uint32_t n_uses, cap_uses;
};

struct ct_bad_entry {
	uint32_t sample;
	char *text;
};

/* The bad samples found since the loader was created. */
struct ct_bad_list {
	pthread_mutex_t lock;
	_Atomic uint32_t *known; /* one bit per sample; `own` or borrowed */
	_Atomic uint32_t *own;
	uint32_t *reported;           /* one bit per sample; used by the caller's thread only */
	struct ct_bad_entry *entries; /* known, but not reported yet */
	size_t n, cap;
	char *last; /* text of the last sample that was reported and that this loader has found */
	uint64_t n_reported;
};

struct ct_loader_worker {
	struct ct_thread thread;
	ct_loader *loader;
	ct_transformer *transformer;    /* NULL: no images */
	struct ct_transform_times seen; /* times of the transformer that are already included in the loader's sums */
	int64_t assemble_ns;            /* not yet included in the loader's sums */
};

/* The parts of the loader that are needed to fill rows. Constant after create. */
struct ct_loader_rows {
	const ct_dataset *data;
	const struct ct_dataset_info *info;
	int c; /* channels of the images */
	struct ct_sampler sampler;
	const struct ct_augment *describe; /* NULL: rows are not described */
	float mixup, cutmix;
	enum ct_bad_sample policy;
	uint64_t max_bad;
	void (*on_bad)(void *user, uint32_t sample, const char *text);
	void *user;
};

/* The sample order of an epoch, stored in orders[epoch % 2]. While the order of one epoch is in use, that of the next
 * epoch is computed. */
struct ct_loader_order {
	uint32_t *perm;
	uint32_t epoch;
	bool valid, making;
	unsigned users; /* number of users: the newest batch until all its rows are taken, and each chunk that is being
			 * filled */
};

struct ct_loader {
	struct ct_loader_rows rows;
	bool images;
	struct ct_transform transform;
	struct ct_loader_size *sizes;  /* owned */
	struct ct_class_order classes; /* of a balanced sampler */
	int n_sizes;
	ct_device *device; /* NULL: ordinary memory */
	int n_threads;
	uint32_t ahead, max_out, depth; /* limits on batches prepared ahead and on batches out; number of slots, enough
					 * for both */
	uint32_t chunk_rows;
	uint64_t steps; /* per epoch */
	struct ct_loader_slot *slots;
	struct ct_loader_slot **ring;     /* [depth]; batch i is in ring[i % depth] */
	struct ct_loader_worker *workers; /* [n_threads], or one worker for the caller's thread if n_threads is 0 */
	struct ct_loader_order orders[2];
	struct ct_bad_list bad;

	pthread_mutex_t lock;
	pthread_cond_t work, ready, idle;
	bool stop, hold;
	unsigned busy;         /* jobs that are running */
	uint32_t epoch, micro; /* position of the batch to open next */
	uint64_t step;
	struct ct_loader_slot *newest; /* the batch that was opened last; NULL: none since the last seek */
	uint32_t row;                  /* the next row of `newest` to take */
	uint64_t n_opened, n_delivered,
		n_freed; /* batches since the last seek; those in [n_freed, n_delivered) are out */
	struct ct_loader_stats stats;
};

/* Compute the image size of an epoch, and the size of one row in bytes. */
void ct__loader_size_at(const ct_loader *l, uint32_t epoch, int *h, int *w);
size_t ct__loader_row_bytes(const ct_loader *l, int h, int w);
/* Main function of a thread; `arg` is a struct ct_loader_worker. */
void *ct__loader_work(void *arg);

/* The caller has set `known` if it is borrowed. */
enum ct_status ct__bad_list_init(struct ct_bad_list *b, uint32_t n) CT_MUST_CHECK;
void ct__bad_list_release(struct ct_bad_list *b);
bool ct__bad_list_knows(struct ct_bad_list *b, uint32_t sample);
/* Records a sample with the thread's current error as the reason. Any thread may call this. */
enum ct_status ct__bad_list_add(struct ct_bad_list *b, const ct_dataset *d, uint32_t sample) CT_MUST_CHECK;
/* Records that a row of the slot has used a bad sample. Any thread may call this. */
enum ct_status ct__bad_list_use(struct ct_bad_list *b, struct ct_loader_slot *s, struct ct_bad_use use) CT_MUST_CHECK;
/* Reports the bad samples of the slot, row by row, and counts them. Fails with CT_DATA if the limit on bad samples is
 * now exceeded. */
enum ct_status ct__bad_list_report(struct ct_bad_list *b, const struct ct_loader_rows *rows,
				   struct ct_loader_slot *s) CT_MUST_CHECK;
/* Fails with CT_DATA if more than rows->max_bad bad samples have been reported. */
enum ct_status ct__bad_list_check(const struct ct_bad_list *b, const struct ct_loader_rows *rows) CT_MUST_CHECK;

/* Fills row `row` of slot s. `order` is the sample order of the slot's epoch. If the row is one of a pair to be mixed
 * and the other row has already been filled, mixes the two. */
enum ct_status ct__loader_fill(const struct ct_loader_rows *rows, struct ct_bad_list *bad, struct ct_loader_worker *w,
			       struct ct_loader_slot *s, const uint32_t *order, uint32_t row) CT_MUST_CHECK;
/* Returns the position of row `row` of slot s in the sample order of its epoch. */
uint32_t ct__loader_position(const struct ct_loader_slot *s, uint32_t row);
/* Determines which rows of neighboring slices the batch needs for mixing, and sets n_work and `before`. */
void ct__loader_neighbors(const struct ct_loader_rows *rows, struct ct_loader_slot *s);
/* Closes the gaps that dropped rows have left in the batch. */
void ct__loader_compact(struct ct_loader_slot *s, const struct ct_dataset_info *info);

#endif
