// One vector of floats, for the instruction set this file is compiled for: AVX-512, AVX2 with FMA, or whatever the compiler makes of a
// 16-byte vector (SSE2, NEON). Everything above is written once, in these few operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(RELNET_AVX512) || defined(RELNET_AVX2)
#include <immintrin.h>
#endif

#define RELNET_INLINE inline __attribute__((always_inline))
#define RELNET_UNROLL _Pragma("GCC unroll 16")

namespace relnet::RELNET_ISA {

constexpr int32_t THREE_QUARTERS = 0x3f400000;  // The bits of 0.75f.

#if defined(RELNET_AVX512)

using V = __m512;
constexpr int W = 16;
// Targets a tile of the forward and of the backward pass: accumulators, sources and constants fill the 32 registers.
constexpr int FORWARD_TARGETS = 6, BACKWARD_TARGETS = 4;

RELNET_INLINE V load(const float* x) { return _mm512_loadu_ps(x); }
RELNET_INLINE void store(float* x, V v) { _mm512_storeu_ps(x, v); }
RELNET_INLINE V set1(float x) { return _mm512_set1_ps(x); }
RELNET_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
RELNET_INLINE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
RELNET_INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
RELNET_INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
RELNET_INLINE V fms(V a, V b, V c) { return _mm512_fmsub_ps(a, b, c); }    // a b - c
RELNET_INLINE V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
// The second operand where one is NaN: a clamp with a constant first keeps NaN.
RELNET_INLINE V min(V bound, V x) { return _mm512_min_ps(bound, x); }
RELNET_INLINE V max(V bound, V x) { return _mm512_max_ps(bound, x); }
RELNET_INLINE V positive_or(V x, V yes, V no) {  // x > 0 ? yes : no
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), no, yes);
}
RELNET_INLINE V clear_below(V x, V v) {  // x <= 0 ? 0 : v; v where x is NaN
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLE_UQ), v);
}
RELNET_INLINE V bit_and(V a, V b) { return _mm512_and_ps(a, b); }
RELNET_INLINE V bit_or(V a, V b) { return _mm512_or_ps(a, b); }
// a - b, and 0 where they are equal: inf - inf is NaN.
RELNET_INLINE V difference(V a, V b) { return _mm512_maskz_sub_ps(_mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ), a, b); }
// The first num of W channels, the others 0.
RELNET_INLINE V load_part(const float* x, int num) { return _mm512_maskz_loadu_ps(__mmask16((1u << num) - 1), x); }
RELNET_INLINE void store_part(float* x, V v, int num) { _mm512_mask_storeu_ps(x, __mmask16((1u << num) - 1), v); }
RELNET_INLINE float sum(V v) { return _mm512_reduce_add_ps(v); }

// Lane l of the result is the sum over the lanes of v[l].
RELNET_INLINE V sums(const V* v) {
    V a[8], b[4], c[2];
    RELNET_UNROLL for (int k = 0; k < 8; k++)
        a[k] = add(_mm512_unpacklo_ps(v[2 * k], v[2 * k + 1]), _mm512_unpackhi_ps(v[2 * k], v[2 * k + 1]));
    RELNET_UNROLL for (int k = 0; k < 4; k++) {
        __m512d x = _mm512_castps_pd(a[2 * k]), y = _mm512_castps_pd(a[2 * k + 1]);
        b[k] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    RELNET_UNROLL for (int k = 0; k < 2; k++)
        c[k] = add(_mm512_shuffle_f32x4(b[2 * k], b[2 * k + 1], 0x88), _mm512_shuffle_f32x4(b[2 * k], b[2 * k + 1], 0xdd));
    return add(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

// v <= 0 ? 0 : v^-1/2, NaN where v is NaN, 0 where v is inf.
RELNET_INLINE V inverse_root(V v) {
    V y = _mm512_rsqrt14_ps(v);
    // One Newton step: 14 bits become 24. At inf it would make NaN of 0. (v / 2 would lose bits of the smallest v.)
    V error = fnma(mul(v, y), mul(y, set1(0.5f)), set1(0.5f));
    V refined = fma(y, error, y);
    __mmask16 infinite = _mm512_cmp_ps_mask(v, set1(INFINITY), _CMP_EQ_OQ);
    refined = _mm512_mask_mov_ps(refined, infinite, _mm512_setzero_ps());
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ), refined);
}

// 1 / v for normal numbers whose inverse is one; NaN stays.
RELNET_INLINE V inverse(V v) {
    V y = _mm512_rcp14_ps(v);
    return fma(y, fnma(v, y, set1(1.0f)), y);
}
// v = 2^exponent * mantissa with a mantissa of [3/4, 3/2), for positive normal numbers; NaN stays NaN in both.
RELNET_INLINE void split(V v, V& exponent, V& mantissa) {
    exponent = _mm512_getexp_ps(mul(v, set1(4.0f / 3.0f)));
    mantissa = _mm512_scalef_ps(v, sub(_mm512_setzero_ps(), exponent));
}

#elif defined(RELNET_AVX2)

using V = __m256;
constexpr int W = 8;
constexpr int FORWARD_TARGETS = 4, BACKWARD_TARGETS = 4;

RELNET_INLINE V load(const float* x) { return _mm256_loadu_ps(x); }
RELNET_INLINE void store(float* x, V v) { _mm256_storeu_ps(x, v); }
RELNET_INLINE V set1(float x) { return _mm256_set1_ps(x); }
RELNET_INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
RELNET_INLINE V sub(V a, V b) { return _mm256_sub_ps(a, b); }
RELNET_INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
RELNET_INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
RELNET_INLINE V fms(V a, V b, V c) { return _mm256_fmsub_ps(a, b, c); }
RELNET_INLINE V fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
RELNET_INLINE V min(V bound, V x) { return _mm256_min_ps(bound, x); }
RELNET_INLINE V max(V bound, V x) { return _mm256_max_ps(bound, x); }
RELNET_INLINE V positive_or(V x, V yes, V no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
}
RELNET_INLINE V clear_below(V x, V v) { return _mm256_and_ps(v, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ)); }
RELNET_INLINE V bit_and(V a, V b) { return _mm256_and_ps(a, b); }
RELNET_INLINE V bit_or(V a, V b) { return _mm256_or_ps(a, b); }
RELNET_INLINE V difference(V a, V b) { return _mm256_and_ps(_mm256_sub_ps(a, b), _mm256_cmp_ps(a, b, _CMP_NEQ_UQ)); }
RELNET_INLINE __m256i first_lanes(int num) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(num), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
RELNET_INLINE V load_part(const float* x, int num) { return _mm256_maskload_ps(x, first_lanes(num)); }
RELNET_INLINE void store_part(float* x, V v, int num) { _mm256_maskstore_ps(x, first_lanes(num), v); }
RELNET_INLINE float sum(V v) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
RELNET_INLINE V sums(const V* v) {
    V a[4], b[2];
    RELNET_UNROLL for (int k = 0; k < 4; k++) a[k] = _mm256_hadd_ps(v[2 * k], v[2 * k + 1]);
    RELNET_UNROLL for (int k = 0; k < 2; k++) b[k] = _mm256_hadd_ps(a[2 * k], a[2 * k + 1]);
    return add(_mm256_permute2f128_ps(b[0], b[1], 0x20), _mm256_permute2f128_ps(b[0], b[1], 0x31));
}
RELNET_INLINE V inverse_root(V v) {
    V y = _mm256_div_ps(set1(1.0f), _mm256_sqrt_ps(v));
    return _mm256_and_ps(y, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ));
}
RELNET_INLINE V inverse(V v) { return _mm256_div_ps(set1(1.0f), v); }
RELNET_INLINE void split(V v, V& exponent, V& mantissa) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i whole = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(THREE_QUARTERS)), 23);
    exponent = _mm256_cvtepi32_ps(whole);
    // NaN would become a number: v - v brings it back.
    mantissa = add(_mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(whole, 23))), sub(v, v));
}

#else

typedef float V __attribute__((vector_size(16)));
typedef int32_t I __attribute__((vector_size(16)));
constexpr int W = 4;
constexpr int FORWARD_TARGETS = 2, BACKWARD_TARGETS = 2;

RELNET_INLINE V load(const float* x) {
    V v;
    std::memcpy(&v, x, sizeof v);
    return v;
}
RELNET_INLINE void store(float* x, V v) { std::memcpy(x, &v, sizeof v); }
RELNET_INLINE V set1(float x) { return V{x, x, x, x}; }
RELNET_INLINE V add(V a, V b) { return a + b; }
RELNET_INLINE V sub(V a, V b) { return a - b; }
RELNET_INLINE V mul(V a, V b) { return a * b; }
RELNET_INLINE V fma(V a, V b, V c) { return a * b + c; }
RELNET_INLINE V fms(V a, V b, V c) { return a * b - c; }
RELNET_INLINE V fnma(V a, V b, V c) { return c - a * b; }
RELNET_INLINE V select(I yes, V a, V b) { return (V)(((I)a & yes) | ((I)b & ~yes)); }
RELNET_INLINE V min(V bound, V x) { return select(bound < x, bound, x); }
RELNET_INLINE V max(V bound, V x) { return select(bound > x, bound, x); }
RELNET_INLINE V positive_or(V x, V yes, V no) { return select(x > set1(0.0f), yes, no); }
RELNET_INLINE V clear_below(V x, V v) { return (V)((I)v & ~(x <= set1(0.0f))); }
RELNET_INLINE V bit_and(V a, V b) { return (V)((I)a & (I)b); }
RELNET_INLINE V bit_or(V a, V b) { return (V)((I)a | (I)b); }
RELNET_INLINE V difference(V a, V b) { return (V)((I)(a - b) & (I)(a != b)); }
RELNET_INLINE V load_part(const float* x, int num) {
    V v = set1(0.0f);
    for (int l = 0; l < num; l++) v[l] = x[l];
    return v;
}
RELNET_INLINE void store_part(float* x, V v, int num) {
    for (int l = 0; l < num; l++) x[l] = v[l];
}
RELNET_INLINE float sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
RELNET_INLINE V sums(const V* v) { return V{sum(v[0]), sum(v[1]), sum(v[2]), sum(v[3])}; }
RELNET_INLINE V inverse_root(V v) {
    V y;
    for (int l = 0; l < W; l++) y[l] = v[l] <= 0.0f ? 0.0f : 1.0f / std::sqrt(v[l]);
    return y;
}
RELNET_INLINE V inverse(V v) { return 1.0f / v; }
RELNET_INLINE void split(V v, V& exponent, V& mantissa) {
    const I whole = ((I)v - THREE_QUARTERS) >> 23;
    exponent = __builtin_convertvector(whole, V);
    mantissa = (V)((I)v - (whole << 23)) + (v - v);
}

#endif

RELNET_INLINE V zero() { return set1(0.0f); }
RELNET_INLINE void add_to(float* x, V v) { store(x, add(load(x), v)); }

}  // namespace relnet::RELNET_ISA
