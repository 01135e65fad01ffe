#include "tests/nn/amx.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/half.h"

static atomic_llong executed;

#if defined(__x86_64__)
enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

static __thread struct {
	bool configured;
	uint8_t rows[TILES];
	uint16_t row_bytes[TILES];
	uint8_t at[TILES][ROWS][ROW_BYTES];
} tiles;

/* A decoded instruction with a VEX prefix. */
struct instruction {
	const uint8_t *end;
	int prefix, opcode; /* prefix: 0, 1: 66, 2: F3, 3: F2 */
	int reg, rm, third; /* numbers of tiles */
	bool memory;
	uint8_t *base;
	ptrdiff_t stride; /* of the rows of a tile: the index register */
};

static uint64_t general(const ucontext_t *u, int i)
{
	static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
				      REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

	return (uint64_t)u->uc_mcontext.gregs[order[i]];
}

static int64_t displacement(const uint8_t *at, int bytes)
{
	int32_t wide = 0;

	if (bytes == 1)
		return (int8_t)*at;
	memcpy(&wide, at, (size_t)bytes);
	return wide;
}

/* Decodes the operand in memory, which begins at the ModRM byte. */
static void decode_memory(const ucontext_t *u, const uint8_t *at, int high_index, int high_base, struct instruction *in)
{
	const int mod = *at >> 6, rm = *at & 7;
	int bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
	uint64_t base = 0;

	at++;
	if (rm == 4) {
		const int index = (*at >> 3 & 7) | high_index, from = *at & 7;

		if (from == 5 && mod == 0)
			bytes = 4;
		else
			base = general(u, from | high_base);
		if (index != 4)
			in->stride = (ptrdiff_t)(general(u, index) << (*at >> 6));
		at++;
	} else if (rm == 5 && mod == 0) {
		bytes = 4;
		base = (uint64_t)(uintptr_t)(at + 4);
	} else {
		base = general(u, rm | high_base);
	}
	in->base = (uint8_t *)(uintptr_t)(base + (uint64_t)displacement(at, bytes));
	in->end = at + bytes;
}

/* Returns whether there is an instruction of AMX's map, 0F 38. */
static bool decode(const ucontext_t *u, struct instruction *in)
{
	const uint8_t *at = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];

	*in = (struct instruction){0};
	/* W and L must be 0. */
	if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || at[2] & 0x84)
		return false;
	in->prefix = at[2] & 3;
	in->opcode = at[3];
	in->third = ~(at[2] >> 3) & 15;
	in->reg = at[4] >> 3 & 7;
	in->rm = at[4] & 7;
	in->memory = at[4] >> 6 != 3;
	in->end = at + 5;
	if (in->memory)
		decode_memory(u, at + 4, at[1] & 0x40 ? 0 : 8, at[1] & 0x20 ? 0 : 8, in);
	return true;
}

static bool is_zero(const uint8_t *at, const uint8_t *end)
{
	while (at < end && *at == 0)
		at++;
	return at == end;
}

/* The processor refuses palettes that it does not know, values in reserved places, and tiles of which only one size is
 * zero. */
static bool configure(const uint8_t *from)
{
	if (from[0] != 1 || !is_zero(from + 1, from + 16) || !is_zero(from + 32, from + 48) ||
	    !is_zero(from + 56, from + 64))
		return false;
	memset(&tiles, 0, sizeof(tiles));
	memcpy(tiles.row_bytes, from + 16, sizeof(tiles.row_bytes));
	memcpy(tiles.rows, from + 48, sizeof(tiles.rows));
	tiles.configured = true;
	for (int i = 0; i < TILES; i++) {
		if (tiles.rows[i] > ROWS || tiles.row_bytes[i] > ROW_BYTES || !tiles.rows[i] != !tiles.row_bytes[i])
			return false;
	}
	return true;
}

/* C[rows][n] += A[rows][pairs] * B[pairs][n], where the elements of A and B are pairs. */
static bool multiply(int c, int a, int b)
{
	const int n = tiles.row_bytes[c] / 4, pairs = tiles.row_bytes[a] / 4;

	if (c == a || c == b || a == b || tiles.rows[c] != tiles.rows[a] || tiles.rows[b] != pairs ||
	    tiles.row_bytes[b] != tiles.row_bytes[c])
		return false;
	for (int m = 0; m < tiles.rows[c]; m++) {
		float even[ROW_BYTES / 4] = {0}, odd[ROW_BYTES / 4] = {0}, row[ROW_BYTES / 4];
		uint16_t left[ROW_BYTES / 2], right[ROW_BYTES / 2];

		memcpy(left, tiles.at[a][m], sizeof(left));
		for (int p = 0; p < pairs; p++) {
			memcpy(right, tiles.at[b][p], sizeof(right));
			for (int i = 0; i < n; i++) {
				even[i] += ct_bf16_to_f32(left[2 * p]) * ct_bf16_to_f32(right[2 * i]);
				odd[i] += ct_bf16_to_f32(left[2 * p + 1]) * ct_bf16_to_f32(right[2 * i + 1]);
			}
		}
		memcpy(row, tiles.at[c][m], sizeof(row));
		for (int i = 0; i < n; i++)
			row[i] += even[i] + odd[i];
		memcpy(tiles.at[c][m], row, sizeof(row));
	}
	return true;
}

static void move_rows(const struct instruction *in, bool store)
{
	for (int i = 0; i < tiles.rows[in->reg]; i++) {
		uint8_t *memory = in->base + i * in->stride, *tile = tiles.at[in->reg][i];

		memcpy(store ? memory : tile, store ? tile : memory, tiles.row_bytes[in->reg]);
	}
}

static bool execute(const struct instruction *in)
{
	if (in->opcode == 0x49 && in->prefix == 0 && in->memory)
		return configure(in->base);
	if (!tiles.configured)
		return false;
	if (in->opcode == 0x49 && in->prefix == 0)
		tiles.configured = false; /* TILERELEASE */
	else if (in->opcode == 0x49 && in->prefix == 3)
		memset(tiles.at[in->reg], 0, sizeof(tiles.at[in->reg]));
	else if (in->opcode == 0x4b && (in->prefix == 2 || in->prefix == 3) && in->memory)
		move_rows(in, in->prefix == 2);
	else
		return in->opcode == 0x5c && in->prefix == 2 && !in->memory && multiply(in->reg, in->rm, in->third);
	return true;
}

static void handle(int signal, siginfo_t *info, void *context)
{
	static const char message[] = "amx: this instruction is unknown or not allowed here\n";
	ucontext_t *u = context;
	struct instruction in;

	(void)signal;
	(void)info;
	if (!decode(u, &in) || !execute(&in)) {
		(void)!write(STDERR_FILENO, message, sizeof(message) - 1);
		_exit(1);
	}
	u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)in.end;
	atomic_fetch_add(&executed, 1);
}

void amx_emulate(void)
{
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};

	sigaction(SIGILL, &action, NULL);
}
#else
void amx_emulate(void)
{
}
#endif

int64_t amx_executed(void)
{
	return atomic_load(&executed);
}
