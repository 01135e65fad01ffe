#include "tests/dist/cases.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "dist/watchdog.h"
#include "tests/dist/await_all.h"
#include "tests/pause.h"

/* Also of the connection, which must be made in this time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHORT (3 * CT_SEC)
#else
#define SHORT CT_SEC
#endif

enum { N = 30000 };

/* ---- a rank with its communicator, and collectives that the host waits for */

struct member {
	ct_comm *c;
	bool posted;
	ct_device *gpu;
	ct_stream *stream;
	float *x; /* [N] */
	ct_work *w;
	ct_watchdog *dog;
};

static struct member join(struct ct_world *world, const struct scene *s)
{
	struct ct_comm_opts o = {.timeout_ns = LONG};
	struct member m = {.posted = s->posted};
	void *p;

	if (s->gpu) {
		CHECK(ct_device_open("cuda", world->id.rank, &m.gpu) == CT_OK);
		CHECK(ct_stream_create(m.gpu, false, &m.stream) == CT_OK);
		CHECK(ct_device_mem_alloc(m.gpu, N * sizeof(float), true, &p) == CT_OK);
		o.device = m.gpu;
	} else {
		CHECK((p = ct_calloc(N, sizeof(float))) != NULL);
	}
	m.x = p;
	CHECK(ct_comm_open(s->backend, world, &o, &m.c) == CT_OK);
	m.c->opts.timeout_ns = s->timeout_ns; /* too short for opening it on a busy machine */
	if (m.posted)
		CHECK(ct_comm_stage(m.c, m.gpu, 4096) == CT_OK);
	/* The host cannot see for which collective a stream waits, so nccl needs the heartbeats of the ranks. */
	if (m.posted && strcmp(s->backend, "nccl") == 0) {
		CHECK(ct_watchdog_start(world, &m.dog) == CT_OK);
		ct_watchdog_add_comm(m.dog, m.c);
	}
	return m;
}

static void leave(struct member *m)
{
	if (m->dog)
		ct_watchdog_remove_comm(m->dog, m->c);
	ct_watchdog_stop(m->dog);
	ct_comm_close(m->c);
	if (!m->gpu) {
		ct_free(m->x);
		return;
	}
	ct_device_drain(m->gpu);
	ct_device_mem_free(m->gpu, m->x);
	ct_stream_destroy(m->stream);
	ct_device_close(m->gpu);
}

static enum ct_status begin_sum(struct member *m, size_t n, enum ct_dtype t, enum ct_redop op)
{
	return m->posted ? ct_comm_post_allreduce(m->c, m->x, n, t, op, m->stream)
			 : ct_comm_allreduce(m->c, m->x, n, t, op, &m->w);
}

static enum ct_status finish(struct member *m, enum ct_status begun)
{
	CT_TRY(begun);
	return m->posted ? ct_stream_sync(m->stream, CT_FOREVER) : ct_work_wait(m->w);
}

static enum ct_status sum(struct member *m)
{
	return finish(m, begin_sum(m, N, CT_F32, CT_SUM));
}

static enum ct_status broadcast(struct member *m, size_t n, int root)
{
	return finish(m, m->posted ? ct_comm_post_broadcast(m->c, m->x, n, CT_F32, root, m->stream)
				   : ct_comm_broadcast(m->c, m->x, n, CT_F32, root, &m->w));
}

/* Sums until that fails: another rank may have issued some before it ended. */
static enum ct_status sums_end(struct member *m)
{
	enum ct_status st;

	while ((st = sum(m)) == CT_OK)
		;
	return st;
}

static void together(struct ct_world *world, const char *name)
{
	CHECK(await_all(world->store, name, world->id.world) == CT_OK);
}

/* ---- ranks that disagree */

enum { KIND, COUNT, TYPE, REDUCTION, ROOT, SHORT_ROOT, BUCKET };

/* A root of a broadcast waits for no one, so a sum follows. */
static enum ct_status issue(struct member *m, int variant, bool odd)
{
	switch (variant) {
	case KIND:
		CT_TRY(odd ? broadcast(m, N, 1) : CT_OK);
		break;
	case COUNT:
		return finish(m, begin_sum(m, odd ? 1001 : 1000, CT_F32, CT_SUM));
	case TYPE:
		return finish(m, begin_sum(m, 1000, odd ? CT_I32 : CT_F32, CT_SUM));
	case REDUCTION: /* hier divides the average only after its parts */
		return finish(m, begin_sum(m, 1000, CT_F32, odd ? CT_AVG : CT_SUM));
	case ROOT:
	case SHORT_ROOT: /* libraries send a short message without asking whether it is expected */
		CT_TRY(broadcast(m, variant == ROOT ? N : 10, odd));
		break;
	case BUCKET:
		ct_comm_set_bucket(m->c, odd);
		break;
	default:
		return CT_BUG;
	}
	return sum(m);
}

/* Rank 0 issues another operation than the others. */
static void disagree(struct ct_world *world, void *arg)
{
	static const char *const texts[][2] = {
		[KIND] = {"allreduce sum f32[", "broadcast f32["},
		[COUNT] = {"f32[1000]", "f32[1001]"},
		[TYPE] = {"f32[1000]", "i32[1000]"},
		[REDUCTION] = {"allreduce sum", "allreduce avg"},
		[ROOT] = {"from rank 0", "from rank 1"},
		[SHORT_ROOT] = {"from rank 0", "from rank 1"},
		[BUCKET] = {"bucket 0", "bucket 1"},
	};
	struct scene *s = arg;
	struct member m = join(world, s);

	CHECK(sum(&m) == CT_OK);
	CHECK(issue(&m, s->variant, world->id.rank > 0) == CT_MISMATCH);
	CHECK(says("ranks disagree at collective ") && says("rank 0 (pid"));
	CHECK(says(texts[s->variant][0]) && says(texts[s->variant][1]));
	CHECK(ct_error_hint_text()[0]);
	is_dead(m.c, CT_MISMATCH);
	together(world, "end");
	leave(&m);
}

static void disagree_message(struct ct_world *world, void *arg)
{
	struct member m = join(world, arg);
	enum ct_status st;

	/* A library may copy a short message without waiting for the receiver, so a sum follows. */
	if (world->id.rank == 0) {
		st = run(ct_comm_send(m.c, m.x, 10, CT_F64, 1, 3, &m.w), &m.w);
		CHECK((st == CT_OK ? sum(&m) : st) == CT_MISMATCH);
	}
	if (world->id.rank == 1)
		CHECK(run(ct_comm_recv(m.c, m.x, 9, CT_F64, 0, 3, &m.w), &m.w) == CT_MISMATCH);
	CHECK(world->id.rank > 1 || (says("f64[10]") && says("f64[9]") && says("tag 3")));
	together(world, "end");
	leave(&m);
}

/* Invalid arguments fail the call, but do not end the communicator. */
static void invalid(struct ct_world *world, void *arg)
{
	struct member m = join(world, arg);

	CHECK(ct_comm_allreduce(m.c, m.x, SIZE_MAX / 2, CT_F32, CT_SUM, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_allreduce(m.c, NULL, 1, CT_F32, CT_SUM, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_allreduce(m.c, m.x, 4, CT_N_DTYPES, CT_SUM, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_allreduce(m.c, m.x, 4, CT_F32, (enum ct_redop)9, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_broadcast(m.c, m.x, 4, CT_F32, world->id.world, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_broadcast(m.c, m.x, 4, CT_F32, -1, &m.w) == CT_BUG && !m.w);
	CHECK(ct_comm_send(m.c, m.x, 4, CT_F32, world->id.rank, 0, &m.w) == CT_BUG && !m.w);
	CHECK(ct_work_wait(NULL) == CT_OK);
	CHECK(sum(&m) == CT_OK);
	leave(&m);
}

/* ---- ranks that end, stop, or do not come */

/* The last rank is killed after `variant` rounds. */
static void killed(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct member m = join(world, s);
	enum ct_status st = CT_OK;

	for (int i = 0; st == CT_OK; i++) {
		if (world->id.rank == world->id.world - 1 && i == s->variant)
			raise(SIGKILL);
		st = sum(&m);
	}
	CHECK(st == CT_PEER_LOST);
	/* Others leave too when they notice it; where gloo is between, one of them may be noticed first. */
	CHECK(says("rank 2 ") || strcmp(s->backend, "gloo") == 0 || strcmp(s->backend, "hier") == 0);
	CHECK(says("rank "));
	is_dead(m.c, st);
	leave(&m);
}

/* A rank that has never sent a heartbeat cannot be found by its silence. */
static void await_heartbeat(struct ct_world *world)
{
	bool seen = false;

	while (!seen) {
		struct ct_member_state *m;
		int n;

		CHECK(ct_store_members(world->store, &m, &n) == CT_OK);
		for (int i = 0; i < n; i++)
			seen = seen || (m[i].rank == world->id.rank && m[i].beat_age_s >= 0);
		ct_free(m);
		pause_briefly();
	}
}

/* The last rank is stopped. The first one to time out ends the communicator for the others. */
static void stopped(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	struct member m = join(world, s);
	enum ct_status st = CT_OK;

	for (int i = 0; st == CT_OK; i++) {
		if (world->id.rank == world->id.world - 1 && i == 3) {
			if (m.dog)
				await_heartbeat(world);
			raise(SIGSTOP);
		}
		st = sum(&m);
	}
	CHECK(st == CT_TIMEOUT || st == CT_PEER_LOST);
	CHECK(st != CT_TIMEOUT || says("rank "));
	s->outcome[world->id.rank] = st;
	leave(&m);
}

/* The others come when rank 0 has timed out. */
static void late(struct ct_world *world, void *arg)
{
	struct member m = join(world, arg);

	if (world->id.rank == 0) {
		CHECK(sum(&m) == CT_TIMEOUT);
		CHECK(says("allreduce sum f32[") && says("rank 1 (pid"));
		is_dead(m.c, CT_TIMEOUT);
	}
	together(world, "late");
	if (world->id.rank > 0) {
		CHECK(sums_end(&m) < 0);
		CHECK(ct_error_status() == CT_PEER_LOST || ct_error_status() == CT_TIMEOUT);
	}
	together(world, "end");
	leave(&m);
}

/* The same for the receiver of a message. */
static void late_message(struct ct_world *world, void *arg)
{
	struct member m = join(world, arg);

	if (world->id.rank == 0) {
		CHECK(run(ct_comm_recv(m.c, m.x, 8, CT_U8, 1, 0, &m.w), &m.w) == CT_TIMEOUT);
		CHECK(says("recv u8[8] from rank 1") && says("rank 1 (pid"));
		is_dead(m.c, CT_TIMEOUT);
	}
	together(world, "late");
	leave(&m);
}

/* Rank 1 closes the communicator while the others still use it. */
static void left(struct ct_world *world, void *arg)
{
	struct member m = join(world, arg);

	if (world->id.rank != 1)
		CHECK(sums_end(&m) == CT_PEER_LOST && says("rank "));
	leave(&m);
	together(world, "end");
}

/* ---- the end from another thread */

/* The final error is that of rank 7, or of the launcher of another host. */
#define OF_RANK "rank 7 (pid 4711 on host nowhere) failed in step 12: loss is not finite"
#define OF_LAUNCHER "the launcher (pid 4711 on host nowhere) has lost a rank"
static bool by_launcher;

static void *abort_it(void *arg)
{
	struct ct_failure why = {.rank = by_launcher ? -1 : 7,
				 .pid = 4711,
				 .host = "nowhere",
				 .status = CT_NUMERIC,
				 .at = {CT_RANK_TRAINING, 12, -1},
				 .hint = "lower the learning rate"};

	snprintf(why.message, sizeof(why.message), "%s", by_launcher ? OF_LAUNCHER : OF_RANK);
	CT_FAIL(CT_IO, "own chain");
	ct_comm_abort(arg, &why);
	CHECK(ct_error_status() == CT_IO);
	return NULL;
}

static void aborted(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct member m = join(world, s);
	struct ct_thread t = {0};

	by_launcher = s->variant;
	if (world->id.rank == 0) {
		CHECK(begin_sum(&m, N, CT_F32, CT_SUM) == CT_OK);
		CHECK(ct_thread_start(&t, "aborter", abort_it, m.c) == CT_OK);
		CHECK(finish(&m, CT_OK) == CT_NUMERIC);
		CHECK(says(by_launcher ? OF_LAUNCHER : OF_RANK));
		/* Who failed, and in what, occurs once. */
		CHECK(!strstr(strstr(ct_error_message(), "4711") + 1, "4711"));
		CHECK(by_launcher || !strstr(strstr(ct_error_message(), "step 12") + 1, "step 12"));
		CHECK(strstr(ct_error_hint_text(), "lower the learning rate"));
		ct_thread_join(&t);
		/* The abort ends the work of a stream, but its result is wrong, so all waits must fail. */
		CHECK(finish(&m, begin_sum(&m, N, CT_F32, CT_SUM)) == CT_NUMERIC);
		if (m.posted)
			CHECK(ct_stream_sync(m.stream, CT_FOREVER) == CT_NUMERIC);
		is_dead(m.c, CT_NUMERIC);
	}
	together(world, "aborted");
	/* A rank of mpi learns from the watchdog that another one has ended. */
	if (world->id.rank > 0 && strcmp(s->backend, "mpi") != 0)
		CHECK(sums_end(&m) == CT_PEER_LOST);
	together(world, "end");
	leave(&m);
}

/* ---- the list */

static const struct comm_case cases[] = {
	{"ranks issue different kinds", disagree, KIND, LONG, 0},
	{"ranks issue different counts", disagree, COUNT, LONG, 0},
	{"ranks issue different types", disagree, TYPE, LONG, 0},
	{"ranks issue different reductions", disagree, REDUCTION, LONG, 0},
	{"ranks issue different roots", disagree, ROOT, LONG, 0},
	{"ranks issue different roots of a short broadcast", disagree, SHORT_ROOT, LONG, 0},
	{"ranks issue different buckets", disagree, BUCKET, LONG, 0},
	{"a message has another length", disagree_message, 0, LONG, 0},
	{"invalid arguments", invalid, 0, LONG, 0},
	{"a rank is killed at rest", killed, 0, LONG, 1},
	{"a rank is killed in traffic", killed, 20, LONG, 1},
	{"a rank is stopped", stopped, 0, SHORT, 1},
	{"a rank is late", late, 0, SHORT, 0},
	{"a message is late", late_message, 0, SHORT, 0},
	{"a rank leaves", left, 0, LONG, 0},
	{"another thread aborts", aborted, false, LONG, 0},
	{"the launcher aborts", aborted, true, LONG, 0},
};

/* The cases that a communicator lacks. */
#define BY_MPIRUN "mpirun may end all ranks when one of them has ended; tests/e2e/test_mpi.py tests it"
#define NO_MESSAGES "messages are not posted to streams"
#define NOT_COMPARED "NCCL does not compare operations, and none waits if sizes are equal"

struct absence {
	const char *name, *why;
};
static const struct absence of_mpi[] = {
	{"a rank is killed at rest", BY_MPIRUN},
	{"a rank is killed in traffic", BY_MPIRUN},
	{"a rank is stopped", BY_MPIRUN},
	{"a rank leaves", "MPI does not report it: to the others, the rank is late"},
	{NULL, NULL},
};
static const struct absence of_nccl[] = {
	{"ranks issue different roots of a short broadcast", NOT_COMPARED},
	{"ranks issue different buckets", NOT_COMPARED},
	{NULL, NULL},
};
static const struct absence of_nccl_posted[] = {
	{"ranks issue different roots of a short broadcast", NOT_COMPARED},
	{"ranks issue different buckets", NOT_COMPARED},
	{"a message has another length", NO_MESSAGES},
	{"a message is late", NO_MESSAGES},
	{"a rank leaves", "the host cannot see whether a stream waits for NCCL: to the others, the rank is late"},
	{NULL, NULL},
};
static const struct absence of_staged[] = {
	{"a message has another length", NO_MESSAGES}, {"a message is late", NO_MESSAGES}, {NULL, NULL}};
static const struct absence none[] = {{NULL, NULL}};

static const struct absence *absences(const struct subject *s)
{
	if (strcmp(s->backend, "mpi") == 0)
		return of_mpi;
	if (strcmp(s->backend, "nccl") == 0)
		return s->posted ? of_nccl_posted : of_nccl;
	return s->posted ? of_staged : none;
}

static const char *why_absent(const struct subject *s, const struct comm_case *k)
{
	const struct absence *a = absences(s);

	while (a->name && strcmp(a->name, k->name) != 0)
		a++;
	return a->why;
}

const struct comm_case *find_case(const char *name)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		if (strcmp(cases[i].name, name) == 0)
			return &cases[i];
	}
	return NULL;
}

void fork_case(const struct subject *s, const struct comm_case *k)
{
	struct scene scene = {.backend = s->backend,
			      .gpu = s->gpu,
			      .posted = s->posted,
			      .timeout_ns = k->timeout_ns,
			      .variant = k->variant,
			      .outcome = shared_zeroed(MAX_RANKS * sizeof(int))};

	assert_non_null(scene.outcome);
	assert_int_equal(run_ranks(N_CASE_RANKS, s->nodes, k->fn, &scene, NULL), k->n_lost);
	if (k->fn == stopped)
		assert_true(scene.outcome[0] == CT_TIMEOUT || scene.outcome[1] == CT_TIMEOUT);
}

void run_cases(const struct subject *s, void (*run_case)(const struct subject *s, const struct comm_case *k))
{
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		const char *why = why_absent(s, &cases[i]);

		printf("%-16s %-34s %s%s\n", s->name, cases[i].name, why ? "absent: " : "runs", why ? why : "");
		fflush(stdout);
		if (!why)
			run_case(s, &cases[i]);
	}
}
