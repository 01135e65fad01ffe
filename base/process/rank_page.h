/* The rank page: the one place in which a rank states what it is doing and why it failed, and in which its launcher
 * requests something of it. The watchdog sends its contents to the store with each heartbeat, communicators copy the
 * step into their records, and the launcher and the report after a failure read it.
 *
 * A launcher creates the pages of its ranks in shared memory, which outlives the ranks: even a rank that was killed by
 * SIGKILL leaves its position, the activities of its loader threads, and its flight records (dist/comm/comm.h). The
 * pages share one clock (base/clock.h). Storing costs a few writes to memory.
 *
 * Every process has one page of its own. Until it joins one of its launcher, or if another program has started it, the
 * page is private memory. */
#ifndef CT_BASE_PROCESS_RANK_PAGE_H
#define CT_BASE_PROCESS_RANK_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/process/position.h"
#include "base/status.h"

/* What a loader thread is doing, and the words for it. */
#define CT_DOINGS(X)                                   \
	X(CT_DOING_WAIT, "waits for a free batch")     \
	X(CT_DOING_ORDER, "shuffles samples of epoch") \
	X(CT_DOING_SAMPLE, "loads sample")
enum ct_doing { CT_DOINGS(CT_CHOICE_ID) };

/* Requests of a launcher to a rank, which states which ones it has fulfilled. Requests to stop are signals, because
 * they also come from other launchers and from batch systems. */
enum ct_rank_request {
	CT_REQUEST_REGROUP = 1 /* stop at the next checkpoint, because more nodes can take part */
};

enum { CT_RANK_THREADS = 64, CT_RANK_AREAS = 4, CT_RANK_AREA_BYTES = 72 << 10 };

struct ct_rank_thread {
	_Atomic int64_t tid; /* 0: unused */
	_Atomic int64_t doing, number,
		since_ns; /* number: of the epoch or sample; since_ns: on the clock of ct_now_ns */
};

struct ct_rank_area {
	_Atomic int64_t used; /* 0: never; 1: in use; 2: was in use, and still has its contents */
	_Alignas(64) unsigned char data[CT_RANK_AREA_BYTES];
};

/* Zeroed memory is a page of a rank that has not begun. Read it with the functions below. */
struct ct_rank_page {
	_Alignas(64) _Atomic int64_t pid;    /* of the process that has joined; 0: none */
	_Atomic int64_t where;               /* phase, and 1 + step: one value, so that both are of the same time */
	_Atomic int64_t posting;             /* 1 + the step whose work is being posted; 0: none */
	_Atomic int64_t collectives;         /* 1 + struct ct_position.collective */
	_Atomic int64_t requests, fulfilled; /* bits of enum ct_rank_request */
	_Atomic int64_t has_error;           /* set after `error` */
	struct ct_error error;
	struct ct_rank_thread threads[CT_RANK_THREADS];
	struct ct_rank_area areas[CT_RANK_AREAS];
};

/* The pages of the ranks of one node, as their launcher knows them. */
struct ct_rank_pages {
	void *map;
	size_t bytes;
	int n, fd; /* fd: close-on-exec */
};

/* For launchers: creates the pages of n ranks, and the clock that they share, which continues the clock of this
 * process. */
enum ct_status ct_rank_pages_create(int n, struct ct_rank_pages *out) CT_MUST_CHECK;
struct ct_rank_page *ct_rank_pages_at(const struct ct_rank_pages *p, int i);
/* Makes all pages those of ranks that have not begun. No rank may be using them. The clock continues. */
void ct_rank_pages_clear(const struct ct_rank_pages *p);
/* Closes the descriptor. The memory stays mapped, because it contains the clock of this process. */
void ct_rank_pages_close(struct ct_rank_pages *p);

/* For ranks: makes page i of n the page of this process, and its clock the clock of this process. Call it before
 * threads are started. The descriptor may be closed afterwards. Fails with CT_USAGE if the descriptor is not that of n
 * pages. */
enum ct_status ct_rank_page_join(int fd, int64_t i, int64_t n) CT_MUST_CHECK;
/* Returns true if the page belongs to a launcher, which reads it. */
bool ct_rank_page_is_shared(void);
/* Returns the page of this process; never NULL. */
struct ct_rank_page *ct_rank_page_own(void);

/* For other programs on the host of a rank: finds the pages among the open files of the launcher that has started
 * process `pid`, and maps them for reading. out->page is the page of this process, or NULL if it has none, or if this
 * user may not read it. The page stays readable when the rank ends, until the view is closed. A zeroed view may be
 * closed. */
struct ct_rank_view {
	const struct ct_rank_page *page;
	void *map;
	size_t bytes;
};
void ct_rank_view_open(int pid, struct ct_rank_view *out);
void ct_rank_view_close(struct ct_rank_view *v);

/* ---- what the rank states. After ct_rank_page_freeze, the page does not change. */

/* Call it when the run has failed: the page then shows what the threads were doing at the failure. May be called from
 * any thread. */
void ct_rank_page_freeze(void);
/* Sets the phase and the number of steps that are done (-1: training has not begun). Returns true if the phase has
 * changed. Only one thread may call it. */
bool ct_rank_page_enter(enum ct_rank_phase phase, int64_t step);
/* Sets only the number of steps. The same thread. */
void ct_rank_page_count_steps(int64_t step);
/* Sets the step whose work is posted next, or -1 for none. */
void ct_rank_page_post_step(int64_t step);
int64_t ct_rank_page_posted_step(void);
/* Sets the number of collectives that were posted to the communicator of all ranks. */
void ct_rank_page_count_collectives(int64_t n);

/* Adds the calling thread to the page, until ct_rank_thread_leave. */
void ct_rank_thread_enter(void);
void ct_rank_thread_leave(void);
/* Stores what the calling thread does. Does nothing if the thread has not been added. */
void ct_rank_thread_doing(enum ct_doing doing, int64_t number);
/* Changes the number only, without reading the clock. */
void ct_rank_thread_number(int64_t number);
const char *ct_doing_text(int64_t doing);

/* ---- memory for the records of communicators */

/* Returns zeroed memory in the page, or NULL if there is none left, or if bytes is too large. */
void *ct_rank_area_take(size_t bytes);
/* Returns the memory to the page, which keeps its contents until it is taken again. Returns false if p is not memory of
 * the page. */
bool ct_rank_area_return(void *p);

/* ---- requests, and the failure, of any page and from any thread */

struct ct_position ct_rank_page_position(const struct ct_rank_page *p);
/* Returns true if the request is new. */
bool ct_rank_page_request(struct ct_rank_page *p, enum ct_rank_request r);
bool ct_rank_page_is_requested(const struct ct_rank_page *p, enum ct_rank_request r);
void ct_rank_page_fulfill(struct ct_rank_page *p, enum ct_rank_request r);
bool ct_rank_page_is_fulfilled(const struct ct_rank_page *p, enum ct_rank_request r);
/* Stores the current error chain as the failure of the rank, with the status st. Returns false if the rank has already
 * stated a failure, which stays. Also works after ct_rank_page_freeze. */
bool ct_rank_page_fail(struct ct_rank_page *p, enum ct_status st);
/* Returns the failure, or NULL if the rank has stated none. */
const struct ct_error *ct_rank_page_error(const struct ct_rank_page *p);

#endif
