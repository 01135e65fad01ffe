/* A lazy device with two streams, two events that order them and two timed events, and helpers that post functions
 * which append letters to a log. */
#ifndef CT_TESTS_LAZY_RIG_H
#define CT_TESTS_LAZY_RIG_H

#include "base/clock.h"
#include "base/device/device.h"
#include "tests/base/check.h"

enum { N_SEEDS = 40 };

struct rig {
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e, *f; /* order streams */
	ct_event *t, *u; /* timed */
	char log[64];    /* one letter for each posted function that has run */
};

static inline struct rig *open_rig(int seed)
{
	struct rig *r = CT_NEW(struct rig);
	char text[16];

	assert_non_null(r);
	snprintf(text, sizeof(text), "%d", seed);
	setenv("CTRAIN_LAZY_SEED", text, 1);
	assert_ok(ct_device_open("lazy", 0, &r->d));
	assert_ok(ct_stream_create(r->d, false, &r->a));
	assert_ok(ct_stream_create(r->d, true, &r->b));
	assert_ok(ct_event_create(r->d, false, &r->e));
	assert_ok(ct_event_create(r->d, false, &r->f));
	assert_ok(ct_event_create(r->d, true, &r->t));
	assert_ok(ct_event_create(r->d, true, &r->u));
	return r;
}

static inline void close_rig(struct rig *r)
{
	ct_event_destroy(r->e);
	ct_event_destroy(r->f);
	ct_event_destroy(r->t);
	ct_event_destroy(r->u);
	ct_stream_destroy(r->a);
	ct_stream_destroy(r->b);
	ct_device_close(r->d);
	ct_free(r);
}

struct note {
	struct rig *rig;
	char letter;
};

static inline enum ct_status add_letter(const void *args)
{
	const struct note *n = args;
	size_t len = strlen(n->rig->log);

	if (len + 1 < sizeof(n->rig->log))
		n->rig->log[len] = n->letter;
	return CT_OK;
}

static inline void post_note(struct rig *r, ct_stream *s, char letter)
{
	struct note n = {r, letter};

	assert_ok(ct_stream_run(s, add_letter, &n, sizeof(n)));
}

static inline long position(const struct rig *r, char letter)
{
	const char *p = strchr(r->log, letter);

	return p ? p - r->log : -1;
}

#endif
