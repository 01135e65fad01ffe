/* While a step is traced, the program and the stepper call back for each span, and the spans are only stored; they
 * become JSON after the benchmark. All-reduces are read from the flight record after each step, because it is short,
 * and later steps would replace them. A callback cannot fail, so it stores its status, which ct_trace_end returns.
 *
 * Each rank has its own clock. The ranks exchange the time of the wall clock at which they begin, and the earliest one
 * is the origin of the trace. The two clocks are read together several times, and the pair that was read fastest is
 * used, because another process may run between the two calls. The events of all ranks are gathered as JSON strings,
 * padded to the length of the longest. */
#include "trainer/tools/bench/step_trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

/* Track BUCKETS + i shows bucket i. Spans of a track must not overlap partly, and buckets do. */
enum { STEPS = 1, PHASES, LAYERS, BUCKETS };

static const char *const phase_names[] = {
	[CT_PHASE_DATA] = "wait for data", [CT_PHASE_FORWARD] = "forward",
	[CT_PHASE_BACKWARD] = "backward",  [CT_PHASE_EXPOSED] = "wait for communication",
	[CT_PHASE_OPTIM] = "update",
};

/* ---- recording */

static void add(struct ct__step_trace *t, struct ct__trace_span span)
{
	struct ct__trace_span *spans = ct_array_grow(t->spans, t->n, &t->cap, sizeof(*spans));

	if (!spans) {
		t->status = CT_NOMEM;
		return;
	}
	t->spans = spans;
	t->spans[t->n++] = span;
}

static void add_layer(void *user, const struct ct_program_span *span)
{
	struct ct__step_trace *t = user;

	add(t, (struct ct__trace_span){.track = LAYERS,
				       .id = span->node,
				       .backward = span->backward,
				       .step = t->step,
				       .begin_ns = span->begin_ns,
				       .end_ns = span->end_ns});
}

static void add_phase(void *user, enum ct_phase phase, int64_t begin_ns, int64_t end_ns)
{
	struct ct__step_trace *t = user;

	if (phase != CT_PHASE_NONE)
		add(t, (struct ct__trace_span){.track = PHASES,
					       .id = (int)phase,
					       .step = t->step,
					       .begin_ns = t->step_ns + begin_ns,
					       .end_ns = t->step_ns + end_ns});
}

static void add_bucket(void *user, const struct ct_comm_op *op)
{
	struct ct__step_trace *t = user;

	if (op->bucket >= 0 && op->done_ns > 0)
		add(t, (struct ct__trace_span){.track = BUCKETS + op->bucket,
					       .id = op->bucket,
					       .step = (uint64_t)op->step,
					       .begin_ns = op->posted_ns,
					       .end_ns = op->done_ns,
					       .bytes = op->bytes});
}

/* The clocks of ct_now_ns on different hosts have different origins, so ranks agree on a time of the wall clock: when
 * the first of them begins. */
static enum ct_status agree_on_origin(struct ct__step_trace *t)
{
	struct ct_session *s = t->session;
	double *all = CT_NEW_ARRAY(double, (size_t)s->world.id.world), wall = 0, first;
	int64_t now_ns = 0, apart_ns = CT_SEC;
	ct_work *w = NULL;

	CT_TRY_ALLOC(all);
	/* Another process may run between the two clocks. */
	for (int i = 0; i < 100 && apart_ns > 10000; i++) {
		const int64_t before_ns = ct_now_ns();
		const double seconds = ct_wall_seconds();
		const int64_t after_ns = ct_now_ns();

		if (after_ns - before_ns > apart_ns)
			continue;
		apart_ns = after_ns - before_ns;
		now_ns = before_ns;
		wall = seconds;
	}
	first = wall;
	enum ct_status st = ct_comm_allgather(s->comm, &wall, all, 1, CT_F64, &w);
	if (st == CT_OK)
		st = ct_work_wait(w);
	for (int i = 0; i < s->world.id.world && st == CT_OK; i++)
		first = fmin(first, all[i]);
	ct_free(all);
	t->origin_ns = now_ns - (int64_t)((wall - first) * 1e9);
	return st;
}

enum ct_status ct_trace_begin(struct ct__step_trace *t, ct_stepper *p, uint64_t step)
{
	struct ct_session *s = t->session;

	t->step = step;
	if (t->origin_ns == 0) {
		CT_TRY(agree_on_origin(t));
		t->first = step;
	}
	ct_rank_page_post_step((int64_t)step);
	ct_program_trace(s->model.full, add_layer, t);
	ct_stepper_on_phase(p, add_phase, t);
	t->step_ns = ct_now_ns();
	return CT_OK;
}

enum ct_status ct_trace_end(struct ct__step_trace *t, ct_stepper *p)
{
	const int64_t now_ns = ct_now_ns();
	double forward, backward;

	CT_TRY(ct_program_times(t->session->model.full, 0, &forward, &backward)); /* collects the spans of a GPU */
	/* The flight record is short, so the next steps would replace these operations. */
	ct_comm_ops_since(t->session->group, (int64_t)t->step, add_bucket, t);
	ct_rank_page_post_step(-1);
	ct_program_trace(t->session->model.full, NULL, NULL);
	ct_stepper_on_phase(p, NULL, NULL);
	add(t, (struct ct__trace_span){.track = STEPS, .step = t->step, .begin_ns = t->step_ns, .end_ns = now_ns});
	return t->status;
}

void ct_trace_release(struct ct__step_trace *t)
{
	ct_free(t->spans);
	t->spans = NULL;
}

/* ---- writing */

static double microseconds(int64_t ns)
{
	return (double)ns / 1e3;
}

static ct_json *event(const struct ct_session *s, const char *ph, int track, const char *name)
{
	ct_json *o = ct_json_object();

	ct_json_set_str(o, "ph", ph);
	ct_json_set_i64(o, "pid", s->world.id.rank);
	ct_json_set_i64(o, "tid", track);
	ct_json_set_str(o, "name", name);
	return o;
}

/* Appends the event, and takes it. */
static enum ct_status put(struct ct_str *out, ct_json *event)
{
	ct_str_add(out, out->len > 0 ? ",\n" : "");
	const enum ct_status st = ct_json_dump(event, false, out);
	ct_json_destroy(event);
	return st;
}

/* Names the process, if `track` is 0, or a track, and determines its position. */
static enum ct_status put_name(const struct ct_session *s, int track, const char *name, struct ct_str *out)
{
	ct_json *e = event(s, "M", track, track ? "thread_name" : "process_name"), *args = ct_json_object();

	ct_json_set_str(args, "name", name);
	ct_json_set(e, "args", args);
	CT_TRY(put(out, e));
	e = event(s, "M", track, track ? "thread_sort_index" : "process_sort_index");
	args = ct_json_object();
	ct_json_set_i64(args, "sort_index", track ? track : s->world.id.rank);
	ct_json_set(e, "args", args);
	return put(out, e);
}

static enum ct_status put_names(const struct ct_session *s, struct ct_str *out)
{
	char host[65] = "?", name[128];

	(void)gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "rank %d on %s", s->world.id.rank, host);
	CT_TRY(put_name(s, 0, name, out));
	CT_TRY(put_name(s, STEPS, "steps", out));
	CT_TRY(put_name(s, PHASES, "phases", out));
	CT_TRY(put_name(s, LAYERS, "layers", out));
	for (int i = 0; i < s->grad.n_buckets && s->world.id.world > 1; i++) {
		snprintf(name, sizeof(name), "bucket %d", i);
		CT_TRY(put_name(s, BUCKETS + i, name, out));
	}
	return CT_OK;
}

static enum ct_status put_span(const struct ct__step_trace *t, const struct ct__trace_span *span, struct ct_str *out)
{
	const struct ct_session *s = t->session;
	const struct ct_node *node = span->track == LAYERS ? ct_graph_node(s->model.graph, span->id) : NULL;
	const char *cat = node                   ? span->backward ? "backward" : "forward"
			  : span->track < LAYERS ? "step"
						 : "communication";
	ct_json *args = ct_json_object(), *e;
	char name[96];

	if (node)
		snprintf(name, sizeof(name), "%s%s", node->name, span->backward ? " (backward)" : "");
	else if (span->track == STEPS)
		snprintf(name, sizeof(name), "step %llu", (unsigned long long)(span->step - t->first + 1));
	else if (span->track == PHASES)
		snprintf(name, sizeof(name), "%s", phase_names[span->id]);
	else
		snprintf(name, sizeof(name), "all-reduce of bucket %d", span->id);
	e = event(s, "X", span->track, name);
	ct_json_set_str(e, "cat", cat);
	ct_json_set_f64(e, "ts", microseconds(span->begin_ns - t->origin_ns));
	ct_json_set_f64(e, "dur", microseconds(span->end_ns - span->begin_ns));
	ct_json_set_i64(args, "step", (int64_t)(span->step - t->first + 1));
	if (node)
		ct_json_set_str(args, "op", ct_op_name(node->op));
	if (span->track >= BUCKETS)
		ct_json_set_i64(args, "bytes", (int64_t)span->bytes);
	ct_json_set(e, "args", args);
	return put(out, e);
}

/* Concatenates the strings of all ranks on rank 0, with commas between them. */
static enum ct_status gather(struct ct_session *s, const struct ct_str *mine, struct ct_str *all)
{
	const size_t world = (size_t)s->world.id.world;
	const int64_t len = (int64_t)mine->len;
	int64_t *lens = CT_NEW_ARRAY(int64_t, world);
	char *from = NULL, *to = NULL;
	size_t most = 0;
	ct_work *w = NULL;
	enum ct_status st;

	CT_TRY_GOTO(lens ? CT_OK : CT_NOMEM, st, out);
	CT_TRY_GOTO(ct_comm_allgather(s->comm, &len, lens, 1, CT_I64, &w), st, out);
	CT_TRY_GOTO(ct_work_wait(w), st, out);
	for (size_t i = 0; i < world; i++)
		most = (size_t)lens[i] > most ? (size_t)lens[i] : most;
	from = ct_calloc(most, 1);
	to = ct_calloc(most, ct_session_is_root(s) ? world : 1);
	CT_TRY_GOTO(from && to ? CT_OK : CT_NOMEM, st, out);
	memcpy(from, mine->s, mine->len);
	CT_TRY_GOTO(ct_comm_gather(s->comm, from, to, most, CT_U8, 0, &w), st, out);
	CT_TRY_GOTO(ct_work_wait(w), st, out);
	for (size_t i = 0; i < world && ct_session_is_root(s); i++) {
		ct_str_add(all, i > 0 ? ",\n" : "");
		ct_str_add_bytes(all, to + i * most, (size_t)lens[i]);
	}
out:
	ct_free(from);
	ct_free(to);
	ct_free(lens);
	return st;
}

static enum ct_status write_file(const struct ct_session *s, const char *path, const struct ct_str *events)
{
	struct ct_str text = {0};

	ct_str_addf(&text,
		    "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"program\": \"ctrain %s\", \"model\": \"%s\", "
		    "\"ranks\": %d},\n\"traceEvents\": [\n",
		    CTRAIN_VERSION, ct_config_choice(s->cfg, "model.name"), s->world.id.world);
	ct_str_add_bytes(&text, events->s, events->len);
	ct_str_add(&text, "\n]}\n");
	enum ct_status st = ct_str_status(&text);
	if (st == CT_OK)
		st = ct_file_replace(path, text.s, text.len);
	ct_str_release(&text);
	return st;
}

enum ct_status ct_trace_write(const struct ct__step_trace *trace, const char *path)
{
	struct ct_session *s = trace->session;
	struct ct_str mine = {0}, all = {0};
	enum ct_status st = put_names(s, &mine);

	for (size_t i = 0; i < trace->n && st == CT_OK; i++)
		st = put_span(trace, &trace->spans[i], &mine);
	if (st == CT_OK)
		st = ct_str_status(&mine);
	if (st == CT_OK)
		st = gather(s, &mine, &all);
	if (st == CT_OK && ct_session_is_root(s))
		st = write_file(s, path, &all);
	ct_str_release(&all);
	ct_str_release(&mine);
	return st;
}
