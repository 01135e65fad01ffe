#include "data/digits/strokes_impl.h"

#include "base/status.h"

/* clang-format off */
#define P(x, y) {(x), (y), 0}
#define END(x, y) {(x), (y), 1}
/* clang-format on */

static const struct ct_digit_shape shapes_0[] = {
	{9, {P(55, 2), P(24, 10), P(8, 50), P(20, 88), P(50, 100), P(80, 86), P(92, 48), P(78, 12), END(48, 1)}},
	{9, {P(62, 4), P(30, 6), P(9, 44), P(22, 90), P(54, 100), P(86, 74), P(88, 34), P(66, 5), END(40, 10)}},
	{9, {P(40, 6), P(62, 0), P(88, 28), P(88, 68), P(60, 100), P(26, 94), P(8, 58), P(16, 22), END(46, 2)}},
};
static const struct ct_digit_shape shapes_1[] = {
	{3, {P(52, 0), P(50, 50), END(49, 100)}},
	{6, {P(26, 24), P(40, 14), END(53, 0), P(53, 0), P(51, 50), END(50, 100)}},
	{8, {P(30, 20), END(52, 0), P(52, 0), P(51, 50), END(50, 99), P(26, 100), P(50, 99), END(76, 100)}},
	{3, {P(56, 0), P(47, 48), END(50, 100)}},
};
static const struct ct_digit_shape shapes_2[] = {
	{10,
	 {P(12, 25), P(26, 5), P(55, 0), P(80, 18), P(74, 44), P(45, 70), END(10, 98), P(10, 98), P(50, 95),
	  END(93, 99)}},
	{12,
	 {P(14, 26), P(32, 3), P(62, 0), P(83, 20), P(72, 48), P(42, 78), P(16, 96), P(7, 86), P(22, 76), P(46, 88),
	  P(72, 99), END(96, 90)}},
	{9, {P(10, 14), P(44, 0), P(78, 8), P(82, 34), P(58, 62), END(14, 97), P(14, 97), P(56, 99), END(90, 94)}},
};
static const struct ct_digit_shape shapes_3[] = {
	{12,
	 {P(12, 12), P(40, 0), P(72, 8), P(75, 30), P(56, 45), END(36, 48), P(36, 48), P(66, 50), P(86, 68), P(76, 92),
	  P(42, 100), END(9, 88)}},
	{12,
	 {P(14, 3), P(48, 2), END(82, 1), P(82, 1), P(62, 22), END(44, 42), P(44, 42), P(74, 50), P(86, 72), P(68, 95),
	  P(38, 100), END(10, 89)}},
	{9, {P(18, 10), P(50, 0), P(78, 16), P(66, 38), P(42, 47), P(70, 54), P(82, 78), P(58, 99), END(12, 92)}},
};
static const struct ct_digit_shape shapes_4[] = {
	{9, {P(24, 0), P(15, 30), END(12, 55), P(12, 55), P(50, 54), END(92, 50), P(70, 8), P(67, 55), END(63, 100)}},
	{9, {P(64, 0), P(36, 34), END(7, 66), P(7, 66), P(50, 66), END(94, 64), P(64, 0), P(65, 50), END(63, 100)}},
	{8, {P(20, 2), P(16, 34), P(26, 52), P(54, 50), END(78, 36), P(80, 2), P(76, 48), END(70, 100)}},
};
static const struct ct_digit_shape shapes_5[] = {
	{13,
	 {P(82, 2), P(52, 3), END(25, 4), P(25, 4), P(22, 24), END(18, 46), P(18, 46), P(46, 36), P(78, 48), P(86, 72),
	  P(66, 96), P(36, 100), END(8, 88)}},
	{12,
	 {P(88, 0), P(54, 2), END(28, 8), P(28, 8), P(24, 24), END(21, 42), P(21, 42), P(56, 38), P(80, 55), P(78, 82),
	  P(50, 100), END(11, 93)}},
	{11,
	 {P(26, 4), P(24, 26), P(22, 44), P(52, 40), P(80, 58), P(74, 88), P(42, 100), END(12, 90), P(26, 4), P(56, 6),
	  END(90, 1)}},
};
static const struct ct_digit_shape shapes_6[] = {
	{10,
	 {P(72, 2), P(40, 16), P(15, 50), P(14, 80), P(40, 100), P(72, 92), P(82, 70), P(65, 52), P(38, 55),
	  END(16, 75)}},
	{10,
	 {P(55, 0), P(26, 30), P(11, 65), P(25, 95), P(55, 100), P(78, 85), P(75, 62), P(52, 52), P(26, 65),
	  END(14, 80)}},
	{10,
	 {P(84, 6), P(52, 4), P(22, 28), P(10, 64), P(28, 96), P(62, 98), P(82, 76), P(68, 56), P(42, 58),
	  END(22, 80)}},
};
static const struct ct_digit_shape shapes_7[] = {
	{6, {P(8, 5), P(48, 5), END(88, 3), P(88, 3), P(62, 44), END(42, 100)}},
	{9, {P(10, 4), P(50, 3), END(88, 4), P(88, 4), P(64, 44), END(48, 100), P(24, 52), P(50, 50), END(76, 47)}},
	{8, {P(12, 22), END(12, 4), P(12, 4), P(50, 8), END(90, 2), P(90, 2), P(70, 46), END(62, 100)}},
	{6, {P(6, 10), P(40, 0), P(80, 4), P(82, 24), P(60, 58), END(46, 100)}},
};
static const struct ct_digit_shape shapes_8[] = {
	{13,
	 {P(76, 14), P(50, 0), P(24, 10), P(25, 32), P(50, 47), P(78, 66), P(80, 88), P(50, 100), P(20, 88), P(22, 66),
	  P(50, 47), P(75, 30), END(76, 12)}},
	{14,
	 {P(50, 0), P(26, 9), P(25, 36), P(50, 46), P(75, 36), P(74, 9), END(50, 0), P(50, 46), P(20, 58), P(16, 88),
	  P(50, 100), P(84, 88), P(80, 58), END(50, 46)}},
	{11,
	 {P(82, 8), P(46, 2), P(22, 20), P(42, 42), P(70, 62), P(72, 90), P(42, 100), P(18, 82), P(34, 60), P(64, 38),
	  END(84, 10)}},
};
static const struct ct_digit_shape shapes_9[] = {
	{10,
	 {P(80, 22), P(58, 2), P(26, 10), P(14, 32), P(34, 52), P(64, 46), END(80, 22), P(80, 22), P(78, 60),
	  END(66, 100)}},
	{12,
	 {P(82, 30), P(70, 5), P(40, 0), P(14, 20), P(20, 46), P(50, 55), END(80, 32), P(81, 24), P(83, 65), P(65, 92),
	  P(35, 100), END(14, 91)}},
	{9, {P(76, 10), P(44, 0), P(16, 18), P(22, 46), P(56, 48), END(78, 12), P(78, 12), P(76, 56), END(74, 100)}},
};

static const struct {
	const struct ct_digit_shape *shapes;
	uint32_t n;
} digits[10] = {
	{shapes_0, CT_ARRAY_LEN(shapes_0)}, {shapes_1, CT_ARRAY_LEN(shapes_1)}, {shapes_2, CT_ARRAY_LEN(shapes_2)},
	{shapes_3, CT_ARRAY_LEN(shapes_3)}, {shapes_4, CT_ARRAY_LEN(shapes_4)}, {shapes_5, CT_ARRAY_LEN(shapes_5)},
	{shapes_6, CT_ARRAY_LEN(shapes_6)}, {shapes_7, CT_ARRAY_LEN(shapes_7)}, {shapes_8, CT_ARRAY_LEN(shapes_8)},
	{shapes_9, CT_ARRAY_LEN(shapes_9)},
};

const struct ct_digit_shape *ct__digit_shapes(int digit, uint32_t *n)
{
	CT_ASSERT(digit >= 0 && digit < 10);
	*n = digits[digit].n;
	return digits[digit].shapes;
}
