/* Descriptions of ranks and operations, for messages. */
#include <stdio.h>

#include "dist/comm/comm_impl.h"

const char *ct__comm_kind_name(enum ct_comm_kind k)
{
	static const char *const names[] = {
		[CT_COMM_ALLREDUCE] = "allreduce", [CT_COMM_REDUCE] = "reduce",
		[CT_COMM_BROADCAST] = "broadcast", [CT_COMM_ALLGATHER] = "allgather",
		[CT_COMM_GATHER] = "gather",       [CT_COMM_SCATTER] = "scatter",
		[CT_COMM_BARRIER] = "barrier",     [CT_COMM_SEND] = "send",
		[CT_COMM_RECV] = "recv",           [CT_COMM_REDUCE_SCATTER] = "reduce_scatter",
	};

	return (unsigned)k < CT_ARRAY_LEN(names) ? names[k] : "unknown operation";
}

static const char *redop_name(enum ct_redop op)
{
	static const char *const names[] = {"sum", "prod", "min", "max", "avg"};

	return (unsigned)op < CT_ARRAY_LEN(names) ? names[op] : "?";
}

int ct__comm_world_rank(const ct_comm *c, int q)
{
	return c->world->peers && q >= 0 && q < c->size ? c->world->peers[q].rank : q;
}

void ct__comm_peer_text(const ct_comm *c, int q, char *buf, size_t len)
{
	if (c->world->peers)
		snprintf(buf, len, "rank %d (pid %d on %s)", c->world->peers[q].rank, c->world->peers[q].pid,
			 c->world->peers[q].host);
	else
		snprintf(buf, len, "rank %d", q);
}

enum ct_status ct__comm_caused_by(const ct_comm *c, int q, enum ct_status st)
{
	return c->world->peers ? ct_error_caused_by(c->world->peers[q].rank, c->world->peers[q].pid) : st;
}

void ct__comm_op_text(const ct_comm *c, enum ct_comm_kind kind, enum ct_dtype t, enum ct_redop op, uint64_t n, int root,
		      int tag, char *buf, size_t len)
{
	const char *name = ct__comm_kind_name(kind), *type = (unsigned)t < CT_N_DTYPES ? ct_dtype_name(t) : "?";
	unsigned long long count = n;
	int r = ct__comm_world_rank(c->opts.outer ? c->opts.outer : c, root);

	switch (kind) {
	case CT_COMM_ALLREDUCE:
	case CT_COMM_REDUCE_SCATTER:
		snprintf(buf, len, "%s %s %s[%llu]", name, redop_name(op), type, count);
		return;
	case CT_COMM_REDUCE:
		snprintf(buf, len, "%s %s %s[%llu] to rank %d", name, redop_name(op), type, count, r);
		return;
	case CT_COMM_BROADCAST:
	case CT_COMM_SCATTER:
		snprintf(buf, len, "%s %s[%llu] from rank %d", name, type, count, r);
		return;
	case CT_COMM_GATHER:
		snprintf(buf, len, "%s %s[%llu] to rank %d", name, type, count, r);
		return;
	case CT_COMM_SEND:
		snprintf(buf, len, "%s %s[%llu] to rank %d tag %d", name, type, count, r, tag);
		return;
	case CT_COMM_RECV:
		snprintf(buf, len, "%s %s[%llu] from rank %d tag %d", name, type, count, r, tag);
		return;
	case CT_COMM_ALLGATHER:
		snprintf(buf, len, "%s %s[%llu]", name, type, count);
		return;
	case CT_COMM_BARRIER:
		break;
	}
	snprintf(buf, len, "%s", name);
}

void ct__work_text(const ct_work *w, char *buf, size_t len)
{
	struct ct_flight_record r;

	if (ct__flight_at(w->comm->flight, w->seq, &r))
		ct__flight_text(w->comm, &r, buf, len);
	else
		ct__comm_op_text(w->comm, w->kind, w->dtype, w->op, w->n, w->root, w->tag, buf, len);
}
