/* gloo's algorithms behind a C interface. Exceptions must not leave this file. */
#include "dist/comm/gloo/gloo_engine.h"
#include "dist/comm/gloo/gloo_transport.hh"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

extern "C" {
#include "base/mem.h"
}

namespace
{

using std::chrono::milliseconds;

/* Below this size gloo's bcube algorithm is faster, above it the ring (measured over loopback with 2 to 4 ranks). */
constexpr size_t kRingFrom = 512 << 10;
/* Up to this size of all vectors together and this number of ranks, it is faster to send the complete vector to all
 * others. */
constexpr size_t kExchangeTo = 64 << 10;
constexpr int kExchangeRanks = 8;
/* Prefixes of slots; gloo's own prefixes end at 0x08. */
constexpr uint8_t kExchangePrefix = 0x10;
constexpr uint8_t kMessagePrefix = 0x11;

uint64_t slot_of(uint8_t prefix, uint32_t tag)
{
	return static_cast<uint64_t>(prefix) << 56 | static_cast<uint64_t>(tag) << 24;
}

milliseconds to_ms(int64_t ns)
{
	constexpr int64_t longest = 1000LL * 3600 * 24 * 365;
	int64_t ms = ns / 1000000;

	return milliseconds(ms < 1 ? 1 : ms > longest ? longest : ms);
}

/* The operations that a rank completes only with data of all others. In the other ones, senders wait until the receives
 * are posted: then no rank runs ahead of the others, and ranks that disagree notice it at once. */
bool needs_all_ranks(uint64_t slot)
{
	switch (slot >> 56) {
	case kExchangePrefix:
	case gloo::kAllreduceSlotPrefix:
	case gloo::kAllgatherSlotPrefix:
	case gloo::kBarrierSlotPrefix:
		return true;
	default:
		return false;
	}
}

/* gloo copies its timeout to the transport only when it connects itself. */
class Context : public gloo::Context
{
public:
	explicit Context(const ct_gloo_opts *o) : gloo::Context(o->rank, o->size)
	{
		setTimeout(to_ms(o->timeout_ns));
		transportContext_ =
			ctrain::make_transport(o->rank, o->size, o->fds, needs_all_ranks, to_ms(o->timeout_ns));
	}
};

/* Removes the first part of messages like "[../../gloo/transport/tcp/pair.cc:598] Connection closed by peer". */
const char *words(const char *what)
{
	const char *end = what[0] == '[' ? strstr(what, "] ") : nullptr;

	return end ? end + 2 : what;
}

/* Runs f and converts exceptions to a status. */
template <typename F> enum ct_status guarded(F f)
{
	try {
		f();
		return CT_OK;
	} catch (const ctrain::TimeoutError &e) {
		return CT_FAIL(CT_TIMEOUT, "%s", words(e.what()));
	} catch (const gloo::IoException &e) {
		return CT_FAIL(CT_PEER_LOST, "%s", words(e.what()));
	} catch (const std::system_error &e) {
		/* A std::system_error comes from starting a thread. */
		CT_FAIL(e.code().value() == EAGAIN ? CT_NOMEM : CT_COMM, "gloo: %s", words(e.what()));
		if (e.code().value() == EAGAIN)
			ct_error_hint(
				"the system cannot start another thread: raise the limit on processes (ulimit -u) or of the "
				"container (pids)");
		return ct_error_status();
	} catch (const std::bad_alloc &) {
		return CT_FAIL(CT_NOMEM, "gloo: out of memory");
	} catch (const std::exception &e) {
		return CT_FAIL(CT_COMM, "gloo: %s", words(e.what()));
	} catch (...) {
		return CT_FAIL(CT_COMM, "gloo: unknown exception");
	}
}

} // namespace

struct ct_gloo_engine {
	std::shared_ptr<Context> context;
	std::vector<char> scratch;
	std::vector<char> vectors;                                /* of all ranks, for exchanges */
	std::unique_ptr<gloo::transport::UnboundBuffer> exchange; /* refers to `vectors`; not set with many ranks */
};

struct ct_gloo_message {
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
	bool sending = false;
	char nothing = 0; /* the address of an empty message */
};

namespace
{

void connect(ct_gloo_engine *g, const struct ct_gloo_opts *o)
{
	g->context = std::make_shared<Context>(o);
	if (o->size > kExchangeRanks)
		return;
	g->vectors.resize(kExchangeTo);
	g->exchange = g->context->createUnboundBuffer(g->vectors.data(), g->vectors.size());
}

/* The reduction that gloo calls: c = a op b, where c may be a or b. */
std::function<void(void *, const void *, const void *, size_t)> reduction(enum ct_dtype t, enum ct_redop op)
{
	return [t, op](void *c, const void *a, const void *b, size_t n) {
		if (c == b)
			std::swap(a, b);
		if (c != a)
			memcpy(c, a, n * ct_dtype_bytes(t));
		ct__reduce_into(c, b, n, t, op);
	};
}

char *bytes(const void *p)
{
	return static_cast<char *>(const_cast<void *>(p));
}

/* Waits until a message of the buffer has been transferred. */
void finish(milliseconds timeout, gloo::transport::UnboundBuffer &buffer, bool sending)
{
	if (!(sending ? buffer.waitSend(timeout) : buffer.waitRecv(timeout)))
		throw gloo::IoException("a message was aborted");
}

/* Every rank sends its vector to all others and reduces all vectors itself, so that there is one message after another
 * instead of two or more. */
void exchange_and_reduce(ct_gloo_engine *g, const struct ct_gloo_op *op, void *buf, size_t n)
{
	const int rank = g->context->rank, size = g->context->size;
	const size_t len = n * ct_dtype_bytes(op->dtype);
	const uint64_t slot = slot_of(kExchangePrefix, op->tag);
	void *in[kExchangeRanks];

	for (int q = 0; q < size; q++) {
		in[q] = g->vectors.data() + static_cast<size_t>(q) * len;
		if (q != rank)
			g->exchange->recv(q, slot, static_cast<size_t>(q) * len, len);
	}
	memcpy(in[rank], buf, len);
	for (int q = 0; q < size; q++) {
		if (q != rank)
			g->exchange->send(q, slot, static_cast<size_t>(rank) * len, len);
	}
	for (int q = 1; q < size; q++)
		finish(g->context->getTimeout(), *g->exchange, false);
	for (int q = 1; q < size; q++)
		finish(g->context->getTimeout(), *g->exchange, true);
	ct__reduce_ranks(in, size, &buf, 1, n, op->dtype, op->op);
}

void allreduce(ct_gloo_engine *g, const struct ct_gloo_op *op, void *buf, size_t n)
{
	gloo::AllreduceOptions o(g->context);
	size_t len = n * ct_dtype_bytes(op->dtype);

	if (g->exchange && len * static_cast<size_t>(g->context->size) <= kExchangeTo)
		return exchange_and_reduce(g, op, buf, n);
	/* gloo needs only the size of an element. */
	switch (ct_dtype_bytes(op->dtype)) {
	case 1:
		o.setOutput(static_cast<uint8_t *>(buf), n);
		break;
	case 2:
		o.setOutput(static_cast<uint16_t *>(buf), n);
		break;
	case 4:
		o.setOutput(static_cast<uint32_t *>(buf), n);
		break;
	default:
		o.setOutput(static_cast<uint64_t *>(buf), n);
		break;
	}
	o.setAlgorithm(len < kRingFrom ? gloo::AllreduceOptions::Algorithm::BCUBE
				       : gloo::AllreduceOptions::Algorithm::RING);
	o.setReduceFunction(reduction(op->dtype, op->op));
	o.setTag(op->tag);
	gloo::allreduce(o);
	if (op->op == CT_AVG)
		ct__reduce_scale(buf, n, op->dtype, g->context->size);
}

void reduce(ct_gloo_engine *g, const struct ct_gloo_op *op)
{
	gloo::ReduceOptions o(g->context);

	switch (ct_dtype_bytes(op->dtype)) {
	case 1:
		o.setOutput(static_cast<uint8_t *>(op->dst), op->n);
		break;
	case 2:
		o.setOutput(static_cast<uint16_t *>(op->dst), op->n);
		break;
	case 4:
		o.setOutput(static_cast<uint32_t *>(op->dst), op->n);
		break;
	default:
		o.setOutput(static_cast<uint64_t *>(op->dst), op->n);
		break;
	}
	o.setRoot(op->root);
	o.setReduceFunction(reduction(op->dtype, op->op));
	o.setTag(op->tag);
	gloo::reduce(o);
	if (op->op == CT_AVG && op->root == g->context->rank)
		ct__reduce_scale(op->dst, op->n, op->dtype, g->context->size);
}

/* gloo's newer interface has no reduce-scatter, so we all-reduce a copy and keep this rank's part. */
void reduce_scatter(ct_gloo_engine *g, const struct ct_gloo_op *op)
{
	size_t part = op->n * ct_dtype_bytes(op->dtype), all = part * static_cast<size_t>(g->context->size);

	if (g->scratch.size() < all)
		g->scratch.resize(all);
	memcpy(g->scratch.data(), op->src, all);
	allreduce(g, op, g->scratch.data(), op->n * static_cast<size_t>(g->context->size));
	memcpy(op->dst, g->scratch.data() + part * static_cast<size_t>(g->context->rank), part);
}

void broadcast(ct_gloo_engine *g, const struct ct_gloo_op *op, size_t len)
{
	gloo::BroadcastOptions o(g->context);

	o.setOutput(bytes(op->dst), len);
	o.setRoot(op->root);
	o.setTag(op->tag);
	gloo::broadcast(o);
}

void allgather(ct_gloo_engine *g, const struct ct_gloo_op *op, size_t len)
{
	gloo::AllgatherOptions o(g->context);

	o.setInput(bytes(op->src), len);
	o.setOutput(bytes(op->dst), len * static_cast<size_t>(g->context->size));
	o.setTag(op->tag);
	gloo::allgather(o);
}

void gather(ct_gloo_engine *g, const struct ct_gloo_op *op, size_t len)
{
	gloo::GatherOptions o(g->context);

	o.setInput(bytes(op->src), len);
	if (op->root == g->context->rank)
		o.setOutput(bytes(op->dst), len * static_cast<size_t>(g->context->size));
	o.setRoot(op->root);
	o.setTag(op->tag);
	gloo::gather(o);
}

void scatter(ct_gloo_engine *g, const struct ct_gloo_op *op, size_t len)
{
	gloo::ScatterOptions o(g->context);
	std::vector<char *> parts;

	for (int q = 0; op->root == g->context->rank && q < g->context->size; q++)
		parts.push_back(bytes(op->src) + static_cast<size_t>(q) * len);
	if (!parts.empty())
		o.setInputs(parts, len);
	o.setOutput(bytes(op->dst), len);
	o.setRoot(op->root);
	o.setTag(op->tag);
	gloo::scatter(o);
}

void barrier(ct_gloo_engine *g, const struct ct_gloo_op *op)
{
	gloo::BarrierOptions o(g->context);

	o.setTag(op->tag);
	gloo::barrier(o);
}

void run(ct_gloo_engine *g, const struct ct_gloo_op *op)
{
	size_t len = op->n * ct_dtype_bytes(op->dtype);

	if (len == 0)
		return barrier(g, op);
	switch (op->kind) {
	case CT_COMM_ALLREDUCE:
		return allreduce(g, op, op->dst, op->n);
	case CT_COMM_REDUCE:
		return reduce(g, op);
	case CT_COMM_BROADCAST:
		return broadcast(g, op, len);
	case CT_COMM_ALLGATHER:
		return allgather(g, op, len);
	case CT_COMM_GATHER:
		return gather(g, op, len);
	case CT_COMM_SCATTER:
		return scatter(g, op, len);
	case CT_COMM_REDUCE_SCATTER:
		return reduce_scatter(g, op);
	case CT_COMM_BARRIER:
	case CT_COMM_SEND:
	case CT_COMM_RECV:
		break;
	}
	return barrier(g, op);
}

enum ct_status open_engine(const struct ct_gloo_opts *opts, ct_gloo_engine **out)
{
	*out = nullptr;
	return guarded([&] {
		auto g = std::make_unique<ct_gloo_engine>();

		connect(g.get(), opts);
		*out = g.release();
	});
}

void close_engine(ct_gloo_engine *g)
{
	(void)guarded([&] { delete g; });
}

enum ct_status run_op(ct_gloo_engine *g, const struct ct_gloo_op *op)
{
	return guarded([&] { run(g, op); });
}

enum ct_status start_message(ct_gloo_engine *g, const struct ct_gloo_op *op, ct_gloo_message **out)
{
	*out = nullptr;
	return guarded([&] {
		auto m = std::make_unique<ct_gloo_message>();
		const uint64_t slot = slot_of(kMessagePrefix, op->tag);
		size_t len = op->n * ct_dtype_bytes(op->dtype);

		m->sending = op->kind == CT_COMM_SEND;
		char *buf = len == 0 ? &m->nothing : bytes(m->sending ? op->src : op->dst);
		m->buffer = g->context->createUnboundBuffer(buf, len);
		if (m->sending)
			m->buffer->send(op->root, slot);
		else
			m->buffer->recv(op->root, slot);
		*out = m.release();
	});
}

enum ct_status finish_message(ct_gloo_engine *g, ct_gloo_message *m)
{
	std::unique_ptr<ct_gloo_message> own(m);

	return guarded([&] { finish(g->context->getTimeout(), *m->buffer, m->sending); });
}

} // namespace

const struct ct_gloo_module ct_gloo_module = {
	{CT_MODULE_ABI, CT_BUILD_ID}, open_engine, close_engine, run_op, start_message, finish_message};
