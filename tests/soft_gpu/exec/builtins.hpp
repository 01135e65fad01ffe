/* Built-in functions of CUDA C++ for device.hpp: atomics, loads and stores, bits, conversions, mathematics. */
#ifndef CT_TESTS_SOFT_GPU_BUILTINS_HPP
#define CT_TESTS_SOFT_GPU_BUILTINS_HPP

#include <cstdint>
#include <cstring>

#include <math.h> /* the functions of the C library, also in the global namespace */

/* A parameter that takes part in no deduction. */
template <class T> struct soft_same {
	typedef T type;
};

/* ---- Atomics: threads run one at a time ------------------------------------------------------------- */

#define SOFT_ATOMIC(name, expression)                                  \
	template <class T> T name(T *p, typename soft_same<T>::type v) \
	{                                                              \
		const T old = *p;                                      \
                                                                       \
		*p = static_cast<T>(expression);                       \
		soft_gpu_atomic(p, sizeof(*p));                        \
		return old;                                            \
	}
SOFT_ATOMIC(atomicAdd, old + v)
SOFT_ATOMIC(atomicSub, old - v)
SOFT_ATOMIC(atomicMin, v < old ? v : old)
SOFT_ATOMIC(atomicMax, old < v ? v : old)
SOFT_ATOMIC(atomicAnd, old &v)
SOFT_ATOMIC(atomicOr, old | v)
SOFT_ATOMIC(atomicXor, old ^ v)
SOFT_ATOMIC(atomicExch, v)
SOFT_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
SOFT_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef SOFT_ATOMIC

template <class T> T atomicCAS(T *p, typename soft_same<T>::type expected, typename soft_same<T>::type v)
{
	const T old = *p;

	if (old == expected)
		*p = v;
	soft_gpu_atomic(p, sizeof(*p));
	return old;
}

/* ---- Loads and stores with cache hints -------------------------------------------------------------- */

#define SOFT_LOAD(name)                       \
	template <class T> T name(const T *p) \
	{                                     \
		return *p;                    \
	}
SOFT_LOAD(__ldg)
SOFT_LOAD(__ldca)
SOFT_LOAD(__ldcg)
SOFT_LOAD(__ldcs)
SOFT_LOAD(__ldcv)
SOFT_LOAD(__ldlu)
#undef SOFT_LOAD

#define SOFT_STORE(name)                                                  \
	template <class T> void name(T *p, typename soft_same<T>::type v) \
	{                                                                 \
		*p = v;                                                   \
	}
SOFT_STORE(__stcg)
SOFT_STORE(__stcs)
SOFT_STORE(__stwb)
SOFT_STORE(__stwt)
#undef SOFT_STORE

/* ---- Integers --------------------------------------------------------------------------------------- */

template <class T> T min(T a, typename soft_same<T>::type b)
{
	return b < a ? b : a;
}
template <class T> T max(T a, typename soft_same<T>::type b)
{
	return a < b ? b : a;
}
inline int __mul24(int a, int b)
{
	/* The low 24 bits with their sign. */
	const int64_t x = static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8;
	const int64_t y = static_cast<int32_t>(static_cast<uint32_t>(b) << 8) >> 8;

	return static_cast<int>(static_cast<uint32_t>(x * y));
}
inline unsigned __umul24(unsigned a, unsigned b)
{
	return (a & 0xFFFFFF) * (b & 0xFFFFFF);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
	return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
	return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
	return __builtin_popcountll(x);
}
inline int __clz(int x)
{
	return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x)
{
	return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x)
{
	return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
	return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x)
{
	unsigned r = 0;

	for (int i = 0; i < 32; i++)
		r |= (x >> i & 1) << (31 - i);
	return r;
}
/* Byte i of the result is the byte of y:x that the digit i of s selects. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
	const uint64_t all = static_cast<uint64_t>(y) << 32 | x;
	unsigned r = 0;

	for (int i = 0; i < 4; i++)
		r |= static_cast<unsigned>(all >> 8 * (s >> 4 * i & 7) & 0xFF) << 8 * i;
	return r;
}
/* The upper half of hi:lo shifted to the left; the lower half of hi:lo shifted to the right. */
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
	return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
	return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (shift & 31));
}

/* ---- Conversions ------------------------------------------------------------------------------------ */

template <class To, class From> To soft_bits(From v)
{
	static_assert(sizeof(To) == sizeof(From), "the same number of bits");
	To to;

	memcpy(&to, &v, sizeof(to));
	return to;
}
inline int __float_as_int(float x)
{
	return soft_bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
	return soft_bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
	return soft_bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
	return soft_bits<float>(x);
}
/* To the nearest, and to the range of the type; NaN becomes 0. */
inline int __float2int_rn(float x)
{
	return isnan(x)              ? 0
	       : x >= 2147483648.0f  ? INT32_MAX
	       : x <= -2147483648.0f ? INT32_MIN
				     : static_cast<int>(rintf(x));
}
inline unsigned __float2uint_rn(float x)
{
	return !(x > 0) ? 0 : x >= 4294967296.0f ? UINT32_MAX : static_cast<unsigned>(rintf(x));
}
inline float __int2float_rn(int x)
{
	return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x)
{
	return static_cast<float>(x);
}
inline float __double2float_rn(double x)
{
	return static_cast<float>(x);
}

/* ---- Mathematics ------------------------------------------------------------------------------------ */

inline float rsqrtf(float x)
{
	return 1.0f / sqrtf(x);
}
inline double rsqrt(double x)
{
	return 1.0 / sqrt(x);
}
inline float __saturatef(float x)
{
	return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline void sincospif(float x, float *s, float *c)
{
	*s = static_cast<float>(sin(M_PI * x));
	*c = static_cast<float>(cos(M_PI * x));
}
inline float fdividef(float a, float b)
{
	return a / b;
}
/* The C library declares functions of these names. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __fdividef(a, b) ((a) / (b))
#define __fadd_rn(a, b) ((a) + (b))
#define __fsub_rn(a, b) ((a) - (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __fdiv_rn(a, b) ((a) / (b))
#define __frcp_rn(x) (1.0f / (x))
#define __fsqrt_rn(x) sqrtf(x)
#define __frsqrt_rn(x) (1.0f / sqrtf(x))
#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __trap() __builtin_trap()

#endif
