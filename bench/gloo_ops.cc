/* Measures collectives of gloo alone, for comparison with ctrain's communicator gloo (bench/vs_library.py). Start it
 * once per rank:
 *
 *     gloo_ops DIRECTORY RANK SIZE OPERATION BYTES...
 *
 * The ranks meet in the empty DIRECTORY and connect over 127.0.0.1 with gloo's TCP transport, whose settings are not
 * changed. The vectors are those of `ctrain bench comm`: fp32, all-reduce and reduce in place. allreduce uses gloo's
 * default algorithm, allreduce_bcube the other one. Rank 0 prints lines "BYTES MICROSECONDS". BYTES is the size of the
 * complete vector. */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/median_time.h"

extern "C" {
#include "base/mem.h"
}

namespace
{

using gloo::AllreduceOptions;

struct Bench {
	std::shared_ptr<gloo::rendezvous::Context> context;
	std::function<void(Bench &)> operation;
	float *a = nullptr, *b = nullptr;
	size_t n = 0; /* elements per rank */
	uint32_t tag = 0;

	size_t size() const
	{
		return static_cast<size_t>(context->size);
	}

	bool is_root() const
	{
		return context->rank == 0;
	}
};

void add(void *c, const void *a, const void *b, size_t n)
{
	gloo::sum<float>(c, a, b, n);
}

void allreduce_with(Bench &g, AllreduceOptions::Algorithm algorithm)
{
	AllreduceOptions o(g.context);

	o.setAlgorithm(algorithm);
	o.setOutput(g.a, g.n);
	o.setReduceFunction(add);
	o.setTag(g.tag++);
	gloo::allreduce(o);
}

void allreduce(Bench &g)
{
	allreduce_with(g, AllreduceOptions::Algorithm::UNSPECIFIED);
}

void allreduce_bcube(Bench &g)
{
	allreduce_with(g, AllreduceOptions::Algorithm::BCUBE);
}

void reduce(Bench &g)
{
	gloo::ReduceOptions o(g.context);

	o.setOutput(g.a, g.n);
	o.setReduceFunction(add);
	o.setRoot(0);
	o.setTag(g.tag++);
	gloo::reduce(o);
}

void broadcast(Bench &g)
{
	gloo::BroadcastOptions o(g.context);

	o.setOutput(g.a, g.n);
	o.setRoot(0);
	o.setTag(g.tag++);
	gloo::broadcast(o);
}

void allgather(Bench &g)
{
	gloo::AllgatherOptions o(g.context);

	o.setInput(g.a, g.n);
	o.setOutput(g.b, g.n * g.size());
	o.setTag(g.tag++);
	gloo::allgather(o);
}

void gather(Bench &g)
{
	gloo::GatherOptions o(g.context);

	o.setInput(g.a, g.n);
	if (g.is_root())
		o.setOutput(g.b, g.n * g.size());
	o.setRoot(0);
	o.setTag(g.tag++);
	gloo::gather(o);
}

void scatter(Bench &g)
{
	gloo::ScatterOptions o(g.context);
	std::vector<float *> parts;

	for (size_t q = 0; g.is_root() && q < g.size(); q++)
		parts.push_back(g.a + q * g.n);
	if (g.is_root())
		o.setInputs(parts, g.n);
	o.setOutput(g.b, g.n);
	o.setRoot(0);
	o.setTag(g.tag++);
	gloo::scatter(o);
}

void barrier(Bench &g)
{
	gloo::BarrierOptions o(g.context);

	o.setTag(g.tag++);
	gloo::barrier(o);
}

struct Operation {
	void (*run)(Bench &);
	bool in_parts; /* the vector consists of one part per rank */
};

const std::map<std::string, Operation> operations = {
	{"allreduce", {allreduce, false}}, {"allreduce_bcube", {allreduce_bcube, false}},
	{"reduce", {reduce, false}},       {"broadcast", {broadcast, false}},
	{"allgather", {allgather, true}},  {"gather", {gather, true}},
	{"scatter", {scatter, true}},      {"barrier", {barrier, false}},
};

void once(void *user)
{
	auto *g = static_cast<Bench *>(user);

	g->operation(*g);
}

double largest(void *user, double value)
{
	auto *g = static_cast<Bench *>(user);

	AllreduceOptions o(g->context);

	o.setOutput(&value, 1);
	o.setReduceFunction([](void *c, const void *a, const void *b, size_t n) { gloo::max<double>(c, a, b, n); });
	o.setTag(g->tag++);
	gloo::allreduce(o);
	return value;
}

void connect(Bench &g, const char *directory, int rank, int size)
{
	auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);

	gloo::transport::tcp::attr attr;

	attr.hostname = "127.0.0.1";
	auto device = gloo::transport::tcp::CreateDevice(attr);
	g.context = std::make_shared<gloo::rendezvous::Context>(rank, size);
#ifdef CT_GLOO_STORE_BY_REFERENCE
	g.context->connectFullMesh(*store, device);
#else
	g.context->connectFullMesh(store, device);
#endif
}

} // namespace

int main(int argc, char **argv)
{
	Bench g;

	if (argc < 5 || operations.count(argv[4]) == 0) {
		fprintf(stderr, "usage: gloo_ops DIRECTORY RANK SIZE OPERATION BYTES...\n");
		return 2;
	}
	const Operation &o = operations.at(argv[4]);
	const struct library l = {&g, once, largest};
	connect(g, argv[1], static_cast<int>(strtol(argv[2], nullptr, 10)),
		static_cast<int>(strtol(argv[3], nullptr, 10)));
	g.operation = o.run;
	size_t most = 0;
	for (int i = 5; i < argc; i++)
		most = std::max<size_t>(most, strtoul(argv[i], nullptr, 10));
	/* The same kind of memory as that of `ctrain bench comm`: one allocation for all sizes, because large ones have
	 * huge pages. */
	g.a = static_cast<float *>(ct_calloc_aligned(4096, most + 1));
	g.b = static_cast<float *>(ct_calloc_aligned(4096, most + 1));
	if (!g.a || !g.b)
		return 1;
	/* Pages that were never written are all the same page. */
	memset(g.a, 0, most + 1);
	memset(g.b, 0, most + 1);
	for (int i = 5; i < argc; i++) {
		const size_t bytes = strtoul(argv[i], nullptr, 10);

		g.n = bytes / sizeof(float) / (o.in_parts ? g.size() : 1);
		const double us = median_time_us(&l);
		if (g.is_root())
			printf("%zu %.3f\n", bytes, us);
	}
	ct_free_aligned(g.b);
	ct_free_aligned(g.a);
	return 0;
}
