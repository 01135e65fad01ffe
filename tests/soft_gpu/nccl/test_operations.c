/* The results of all operations, types and reductions, in place and out of place, for one to three ranks. */
#include "base/half.h"
#include "tests/soft_gpu/nccl/ranks.h"

/* Several rounds of each operation. */
enum { N = 33001, MAX_BYTES = 8 * N * MAX_RANKS };

static const struct {
	ncclDataType_t type;
	size_t bytes;
	double error; /* of an average */
} types[] = {{ncclInt8, 1, 0},          {ncclUint8, 1, 0},        {ncclInt32, 4, 0},        {ncclUint32, 4, 0},
	     {ncclInt64, 8, 0},         {ncclUint64, 8, 0},       {ncclFloat16, 2, 0x1p-9}, {ncclBfloat16, 2, 0x1p-6},
	     {ncclFloat32, 4, 0x1p-22}, {ncclFloat64, 8, 0x1p-51}};

enum { N_TYPES = sizeof(types) / sizeof(*types) };

static double get(ncclDataType_t type, const void *memory, size_t i)
{
	switch ((int)type) {
	case ncclInt8:
		return ((const int8_t *)memory)[i];
	case ncclUint8:
		return ((const uint8_t *)memory)[i];
	case ncclInt32:
		return ((const int32_t *)memory)[i];
	case ncclUint32:
		return ((const uint32_t *)memory)[i];
	case ncclInt64:
		return (double)((const int64_t *)memory)[i];
	case ncclUint64:
		return (double)((const uint64_t *)memory)[i];
	case ncclFloat16:
		return (double)ct_f16_to_f32(((const uint16_t *)memory)[i]);
	case ncclBfloat16:
		return (double)ct_bf16_to_f32(((const uint16_t *)memory)[i]);
	case ncclFloat32:
		return (double)((const float *)memory)[i];
	default:
		return ((const double *)memory)[i];
	}
}

static void put(ncclDataType_t type, void *memory, size_t i, double value)
{
	switch ((int)type) {
	case ncclInt8:
		((int8_t *)memory)[i] = (int8_t)value;
		break;
	case ncclUint8:
		((uint8_t *)memory)[i] = (uint8_t)value;
		break;
	case ncclInt32:
		((int32_t *)memory)[i] = (int32_t)value;
		break;
	case ncclUint32:
		((uint32_t *)memory)[i] = (uint32_t)value;
		break;
	case ncclInt64:
		((int64_t *)memory)[i] = (int64_t)value;
		break;
	case ncclUint64:
		((uint64_t *)memory)[i] = (uint64_t)value;
		break;
	case ncclFloat16:
		((uint16_t *)memory)[i] = ct_f16_from_f32((float)value);
		break;
	case ncclBfloat16:
		((uint16_t *)memory)[i] = ct_bf16_from_f32((float)value);
		break;
	case ncclFloat32:
		((float *)memory)[i] = (float)value;
		break;
	default:
		((double *)memory)[i] = value;
	}
}

static bool is_signed(ncclDataType_t t)
{
	return t != ncclUint8 && t != ncclUint32 && t != ncclUint64;
}

/* Element i of what a rank sends. The products of three ranks are exact in every type. */
static double element(ncclDataType_t type, int rank, size_t i)
{
	int v = (int)((i * 7 + (size_t)rank * 3) % 5) + 1;

	return is_signed(type) && (i + (size_t)rank) % 3 == 0 ? -v : v;
}

static double reduced(ncclDataType_t type, ncclRedOp_t op, int n_ranks, size_t i)
{
	double r = element(type, 0, i);

	for (int k = 1; k < n_ranks; k++) {
		double e = element(type, k, i);

		r = op == ncclProd ? r * e : op == ncclMax ? (e > r ? e : r) : op == ncclMin ? (e < r ? e : r) : r + e;
	}
	if (op == ncclAvg)
		r = type <= ncclUint64 ? (double)((int64_t)r / n_ranks) : r / n_ranks;
	return r;
}

struct buffers {
	char *host, *send, *recv; /* [MAX_BYTES]; host is pinned */
};

static struct buffers new_buffers(void)
{
	return (struct buffers){pinned(MAX_BYTES), upload(NULL, MAX_BYTES), upload(NULL, MAX_BYTES)};
}

/* Elements [first, first + n) of what a rank sends, at element `at` of device memory. */
static void fill(struct rank *r, const struct buffers *b, int t, char *device, size_t at, size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(types[t].type, b->host, i, element(types[t].type, r->rank, first + i));
	ok(cudaMemcpyAsync(device + at * types[t].bytes, b->host, n * types[t].bytes, cudaMemcpyHostToDevice,
			   r->stream));
	ok(cudaStreamSynchronize(r->stream));
}

static void fetch(struct rank *r, const struct buffers *b, int t, const char *device, size_t n)
{
	ok(cudaMemcpyAsync(b->host, device, n * types[t].bytes, cudaMemcpyDeviceToHost, r->stream));
	ok(cudaStreamSynchronize(r->stream));
}

static void expect_element(struct rank *r, const struct buffers *b, int t, size_t i, double expected, double error)
{
	double got = get(types[t].type, b->host, i);

	if (got - expected <= error && expected - got <= error)
		return;
	fprintf(stderr, "rank %d, type %d: element %zu is %g, not %g\n", r->rank, (int)types[t].type, i, got, expected);
	_exit(3);
}

static void expect_reduced(struct rank *r, const struct buffers *b, int t, ncclRedOp_t op, const char *device,
			   size_t first, size_t n)
{
	fetch(r, b, t, device, n);
	for (size_t i = 0; i < n; i++)
		expect_element(r, b, t, i, reduced(types[t].type, op, r->n_ranks, first + i),
			       op == ncclAvg ? 10 * types[t].error : 0);
}

static void expect_from(struct rank *r, const struct buffers *b, int t, const char *device, int from, size_t first,
			size_t n)
{
	fetch(r, b, t, device, n);
	for (size_t i = 0; i < n; i++)
		expect_element(r, b, t, i, element(types[t].type, from, first + i), 0);
}

static void reduce_type(struct rank *r, const struct buffers *b, int t, ncclRedOp_t op, size_t n)
{
	ncclDataType_t type = types[t].type;
	int root = r->n_ranks - 1;
	char *mine;

	fill(r, b, t, b->send, 0, 0, n);
	nccl_ok(ncclAllReduce(b->send, b->recv, n, type, op, r->comm, r->stream));
	expect_reduced(r, b, t, op, b->recv, 0, n);
	expect_from(r, b, t, b->send, r->rank, 0, n);
	nccl_ok(ncclAllReduce(b->send, b->send, n, type, op, r->comm, r->stream));
	expect_reduced(r, b, t, op, b->send, 0, n);

	fill(r, b, t, b->send, 0, 0, n);
	nccl_ok(ncclReduce(b->send, r->rank == root ? b->recv : NULL, n, type, op, root, r->comm, r->stream));
	if (r->rank == root)
		expect_reduced(r, b, t, op, b->recv, 0, n);

	fill(r, b, t, b->send, 0, 0, n * (size_t)r->n_ranks);
	nccl_ok(ncclReduceScatter(b->send, b->recv, n, type, op, r->comm, r->stream));
	expect_reduced(r, b, t, op, b->recv, (size_t)r->rank * n, n);
	mine = b->send + (size_t)r->rank * n * types[t].bytes;
	nccl_ok(ncclReduceScatter(b->send, mine, n, type, op, r->comm, r->stream));
	expect_reduced(r, b, t, op, mine, (size_t)r->rank * n, n);
}

static void reduce_all(struct rank *r)
{
	struct buffers b = new_buffers();

	nccl_ok(make_comm(r, true));
	for (int t = 0; t < N_TYPES; t++) {
		for (int op = ncclSum; op <= ncclAvg; op++) {
			reduce_type(r, &b, t, (ncclRedOp_t)op, op == ncclSum && types[t].bytes >= 4 ? N : 101);
			if (op == ncclSum)
				reduce_type(r, &b, t, ncclSum, 1);
		}
	}
	nccl_ok(ncclCommDestroy(r->comm));
}

static void test_reductions(void **state)
{
	(void)state;
	for (int n = 1; n <= 3; n++)
		run_ranks(n, reduce_all, NULL);
}

static void move_type(struct rank *r, const struct buffers *b, int t, size_t n)
{
	size_t ranks = (size_t)r->n_ranks, me = (size_t)r->rank, bytes = types[t].bytes;
	int root = r->n_ranks - 1;
	ncclDataType_t type = types[t].type;

	fill(r, b, t, b->send, 0, 0, n * ranks);
	nccl_ok(ncclBroadcast(b->send, b->recv, n, type, root, r->comm, r->stream));
	expect_from(r, b, t, b->recv, root, 0, n);
	nccl_ok(ncclAllGather(b->send, b->recv, n, type, r->comm, r->stream));
	for (int k = 0; k < r->n_ranks; k++)
		expect_from(r, b, t, b->recv + (size_t)k * n * bytes, k, 0, n);
	nccl_ok(ncclAllGather(b->send + me * n * bytes, b->send, n, type, r->comm, r->stream));
	for (int k = 0; k < r->n_ranks; k++)
		expect_from(r, b, t, b->send + (size_t)k * n * bytes, k, (size_t)k * n, n);

	fill(r, b, t, b->send, 0, 0, n * ranks);
	nccl_ok(ncclAlltoAll(b->send, b->recv, n, type, r->comm, r->stream));
	for (int k = 0; k < r->n_ranks; k++)
		expect_from(r, b, t, b->recv + (size_t)k * n * bytes, k, me * n, n);
	nccl_ok(ncclGather(b->send, r->rank == root ? b->recv : NULL, n, type, root, r->comm, r->stream));
	for (int k = 0; r->rank == root && k < r->n_ranks; k++)
		expect_from(r, b, t, b->recv + (size_t)k * n * bytes, k, 0, n);
	nccl_ok(ncclScatter(r->rank == root ? b->send : NULL, b->recv, n, type, root, r->comm, r->stream));
	expect_from(r, b, t, b->recv, root, me * n, n);
	nccl_ok(ncclBcast(b->send, n, type, root, r->comm, r->stream));
	expect_from(r, b, t, b->send, root, 0, n);
}

static void move_all(struct rank *r)
{
	struct buffers b = new_buffers();

	nccl_ok(make_comm(r, true));
	for (int t = 0; t < N_TYPES; t++) {
		move_type(r, &b, t, 1);
		move_type(r, &b, t, types[t].bytes == 8 ? N : 101);
	}
	nccl_ok(ncclCommDestroy(r->comm));
}

static void test_movements(void **state)
{
	(void)state;
	for (int n = 1; n <= 3; n++)
		run_ranks(n, move_all, NULL);
}

/* A ring, in which each rank sends two messages to the next one, and an empty one. Two streams take part. */
static void send_ring(struct rank *r)
{
	struct buffers b = new_buffers();
	int next = (r->rank + 1) % r->n_ranks, previous = (r->rank + r->n_ranks - 1) % r->n_ranks;
	cudaStream_t other = new_stream();

	nccl_ok(make_comm(r, true));
	fill(r, &b, 8, b.send, 0, 0, N);
	nccl_ok(ncclGroupStart());
	nccl_ok(ncclSend(b.send, N, ncclFloat32, next, r->comm, r->stream));
	nccl_ok(ncclSend(b.send + 4, 3, ncclFloat32, next, r->comm, other));
	nccl_ok(ncclSend(b.send, 0, ncclFloat32, next, r->comm, other));
	nccl_ok(ncclRecv(b.recv, N, ncclFloat32, previous, r->comm, r->stream));
	nccl_ok(ncclRecv(b.recv + MAX_BYTES / 2, 3, ncclFloat32, previous, r->comm, other));
	nccl_ok(ncclRecv(b.recv, 0, ncclFloat32, previous, r->comm, other));
	check(cudaStreamQuery(r->stream) == cudaSuccess); /* nothing is posted before the group ends */
	nccl_ok(ncclGroupEnd());
	expect_from(r, &b, 8, b.recv, previous, 0, N);
	r->stream = other;
	expect_from(r, &b, 8, b.recv + MAX_BYTES / 2, previous, 1, 3);
	nccl_ok(ncclCommDestroy(r->comm));
}

static void test_messages(void **state)
{
	(void)state;
	for (int n = 1; n <= 3; n++)
		run_ranks(n, send_ring, NULL);
}

/* Inputs are multiplied by 0.5, given by the host, or 2, which the device computes. */
static void multiply(struct rank *r)
{
	struct buffers b = new_buffers();
	float half = 0.5f, two = 2;
	void *scalar = upload(&two, sizeof(two));
	ncclRedOp_t by_host, by_device;

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclRedOpCreatePreMulSum(&by_host, &half, ncclFloat32, ncclScalarHostImmediate, r->comm));
	nccl_ok(ncclRedOpCreatePreMulSum(&by_device, scalar, ncclFloat32, ncclScalarDevice, r->comm));
	fill(r, &b, 8, b.send, 0, 0, N);
	nccl_ok(ncclAllReduce(b.send, b.recv, N, ncclFloat32, by_host, r->comm, r->stream));
	fetch(r, &b, 8, b.recv, N);
	for (size_t i = 0; i < N; i++)
		expect_element(r, &b, 8, i, reduced(ncclFloat32, ncclSum, r->n_ranks, i) / 2, 0);
	nccl_ok(ncclAllReduce(b.send, b.recv, N, ncclFloat32, by_device, r->comm, r->stream));
	fetch(r, &b, 8, b.recv, N);
	for (size_t i = 0; i < N; i++)
		expect_element(r, &b, 8, i, reduced(ncclFloat32, ncclSum, r->n_ranks, i) * 2, 0);
	nccl_expect(ncclAllReduce(b.send, b.recv, N, ncclInt32, by_host, r->comm, r->stream), ncclInvalidArgument);
	nccl_ok(ncclRedOpDestroy(by_host, r->comm));
	nccl_expect(ncclRedOpDestroy(by_host, r->comm), ncclInvalidArgument);
	nccl_expect(ncclAllReduce(b.send, b.recv, N, ncclFloat32, by_host, r->comm, r->stream), ncclInvalidArgument);
	nccl_ok(ncclCommDestroy(r->comm));
}

static void test_operators(void **state)
{
	(void)state;
	run_ranks(2, multiply, NULL);
}

/* Sums are computed in the order of ranks, and each partial sum is rounded. */
static void add_in_order(struct rank *r)
{
	static const float singles[3] = {1e8f, -1e8f, 1}, halves[3] = {2048, 1, 1};
	struct buffers b = new_buffers();

	nccl_ok(make_comm(r, true));
	put(ncclFloat32, b.host, 0, (double)singles[r->rank]);
	ok(cudaMemcpy(b.send, b.host, 4, cudaMemcpyHostToDevice));
	nccl_ok(ncclAllReduce(b.send, b.recv, 1, ncclFloat32, ncclSum, r->comm, r->stream));
	fetch(r, &b, 8, b.recv, 1);
	expect_element(r, &b, 8, 0, 1, 0);
	put(ncclFloat16, b.host, 0, (double)halves[r->rank]);
	ok(cudaMemcpy(b.send, b.host, 2, cudaMemcpyHostToDevice));
	nccl_ok(ncclAllReduce(b.send, b.recv, 1, ncclFloat16, ncclSum, r->comm, r->stream));
	fetch(r, &b, 6, b.recv, 1);
	expect_element(r, &b, 6, 0, 2048, 0);
	nccl_ok(ncclCommDestroy(r->comm));
}

static void test_order_of_sums(void **state)
{
	(void)state;
	run_ranks(3, add_in_order, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_order_of_sums), cmocka_unit_test(test_reductions),
					   cmocka_unit_test(test_movements), cmocka_unit_test(test_messages),
					   cmocka_unit_test(test_operators)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
