/* ncclCommSplit. All ranks publish their colors and keys in the memory of the parent. When all have read them, the
 * first rank of each color has published the id of a new communicator, which the others of this color join. */
#include <stdlib.h>

#include "tests/soft_gpu/nccl/nccl_impl.h"

struct soft__split {
	unsigned number; /* of the split of this parent, from 1 */
	enum { COLORS, IDS, JOINING } step;
	bool blocking;
	int n_ranks, rank,
		leader; /* of the new communicator; leader: a rank of the parent; n_ranks 0: no communicator */
	ncclComm_t child, *out;
};

void soft__split_free(ncclComm_t c)
{
	if (c->split && c->split->child) {
		soft__segment_leave(c->split->child->segment, c->split->child->fd, c->split->rank);
		free(c->split->child);
	}
	free(c->split);
	c->split = NULL;
}

static bool precedes(const struct soft__member *m, int a, int b)
{
	return m[a].key != m[b].key ? m[a].key < m[b].key : a < b;
}

static void find_group(const ncclComm_t c, struct soft__split *s)
{
	const struct soft__member *m = c->segment->members;

	s->leader = c->rank;
	for (int r = 0; m[c->rank].color != NCCL_SPLIT_NOCOLOR && r < c->n_ranks; r++) {
		if (m[r].color != m[c->rank].color)
			continue;
		s->n_ranks++;
		s->rank += r != c->rank && precedes(m, r, c->rank);
		if (precedes(m, r, s->leader))
			s->leader = r;
	}
}

static bool all_reached(const ncclComm_t c, unsigned number, bool ids)
{
	for (int r = 0; r < c->n_ranks; r++) {
		const struct soft__member *m = &c->segment->members[r];

		if ((ids ? m->split_ids : m->splits) < number)
			return false;
	}
	return true;
}

/* Returns whether the split has ended. */
static ncclResult_t proceed(ncclComm_t c, struct soft__split *s, bool *ended)
{
	struct soft__member *members = c->segment->members, *me = &members[c->rank];
	struct soft__place place = {c->device, me->host, me->device};
	ncclResult_t e = ncclSuccess;

	if (s->step == COLORS && all_reached(c, s->number, false)) {
		find_group(c, s);
		if (s->n_ranks && s->leader == c->rank)
			e = soft__segment_create(&me->split_id);
		me->split_ids = s->number;
		s->step = IDS;
	}
	if (!e && s->step == IDS && all_reached(c, s->number, true)) {
		if (s->n_ranks)
			e = soft__comm_create(&s->child, &members[s->leader].split_id, s->n_ranks, s->rank, &place);
		s->step = JOINING;
	}
	*ended = s->step == JOINING && (!s->child || s->child->segment->n_joined == (unsigned)s->n_ranks);
	return e;
}

void soft__split_proceed(ncclComm_t c)
{
	struct soft__split *s = c->split;
	bool ended = false;

	if (!s || c->error)
		return;
	c->error = proceed(c, s, &ended);
	if (!ended)
		return;
	if (s->child) {
		s->child->blocking = s->blocking;
		s->child->phase = SOFT__READY;
		soft__segment_complete(s->child->segment);
		soft__comm_publish(s->child);
		*s->out = s->child;
	}
	free(s);
	c->split = NULL;
}

static ncclResult_t split(ncclComm_t c, int color, int key, ncclComm_t *out, const ncclConfig_t *config)
{
	ncclResult_t e = soft__ready(c, "ncclCommSplit");
	struct soft__member *me;
	bool blocking;

	if (e || !out || color < NCCL_SPLIT_NOCOLOR)
		return e ? e : ncclInvalidArgument;
	blocking = c->blocking;
	e = soft__check_config(config, &blocking);
	if (e)
		return e;
	*out = NULL;
	soft__lock();
	me = &c->segment->members[c->rank];
	c->split = soft__alloc(sizeof(*c->split));
	c->split->number = (unsigned)me->splits + 1;
	c->split->blocking = blocking;
	c->split->out = out;
	me->color = color;
	me->key = key;
	me->splits++;
	soft__unlock();
	if (!c->blocking)
		return ncclSuccess; /* ncclCommGetAsyncError of the parent reports ncclInProgress */
	if (soft__in_group()) {
		soft__group_add_wait(c);
		return ncclSuccess;
	}
	return soft__wait_ready(c);
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	int failed = soft_gpu_call(__func__);

	return soft__group_fail(failed ? (ncclResult_t)failed : split(c, color, key, out, config));
}
