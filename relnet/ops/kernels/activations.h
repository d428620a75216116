// The activations psi and their derivatives on vectors, as the tiles need them:
//     accumulate(s, x, total) = total + psi(s x)            derivative(s, x, g) = g psi'(s x)
// `unit` is the factor that s carries already: log2(e) for exp, which is computed as a power of 2.
#pragma once

#include <initializer_list>

#include "simd.h"

namespace relnet::RELNET_ISA {

constexpr float LOG2_E = 1.4426950408889634f;

// 2^(s x) = factor * value, so that a sum of such powers is one fused multiply-add an entry. Relative error 1.3e-7 (AVX2 1.0e-7).
struct Power {
    V factor, value;
};

// 2^t with t = k/2^b + rest: adding MAGIC leaves the nearest k in the low bits of the sum. 2^(k/2^b) comes from a table of 2^b entries
// and an exponent, 2^rest from a polynomial whose argument is shifted so that it needs one multiplication less.
// Right for LOWEST <= t <= 127 (AVX-512: any t that is finite in float).
struct PowerOfTwo {
#if defined(RELNET_AVX512)
    static constexpr float LOWEST = -126.0f;
    // 32 entries, alpha (g^2 + e) with g = rest + 46/32: 46/32 is close to 1/ln 2, where the square is complete.
    static constexpr float MAGIC = 393216.0f, SHIFT = 46.0f / 32.0f, CONSTANT = 2.081260025001066f;
    V low, high;
    struct Table {
        alignas(64) float entries[32];
        Table() {
            for (int i = 0; i < 32; i++) entries[i] = float(0.24109941529149187 * std::exp2(i / 32.0 - std::floor((i - 46) / 32.0)));
        }
    };
    PowerOfTwo() {
        static const Table table;
        low = load(table.entries), high = load(table.entries + 16);
    }
    RELNET_INLINE Power operator()(V s, V x) const {
        V t = fma(s, x, set1(MAGIC));
        V r = sub(t, set1(MAGIC + SHIFT));
        V g = fms(s, x, r);
        V entry = _mm512_permutex2var_ps(low, _mm512_castps_si512(t), high);
        return {_mm512_scalef_ps(entry, r), fma(g, g, set1(CONSTANT))};
    }
#elif defined(RELNET_AVX2)
    // The table's own exponent, 2^-4.2, has to fit in too.
    static constexpr float LOWEST = -120.0f;
    // 8 entries, alpha (g^3 + a g + b) with g = rest + 12/8.
    static constexpr float MAGIC = 1572864.0f, SHIFT = 12.0f / 8.0f, A = 6.2319965042051955f, B = 6.0059000034431316f;
    __m256i table;
    PowerOfTwo() {
        alignas(32) int32_t entries[8];
        for (int i = 0; i < 8; i++) {
            float entry = float(0.05339343203600741 * std::exp2(i / 8.0));
            std::memcpy(&entries[i], &entry, sizeof entry);
            entries[i] -= i << 20;  // The low bits of t are added to the exponent whole: take their fraction off.
        }
        table = _mm256_load_si256(reinterpret_cast<const __m256i*>(entries));
    }
    RELNET_INLINE Power operator()(V s, V x) const {
        V t = fma(s, x, set1(MAGIC));
        V g = fms(s, x, sub(t, set1(MAGIC + SHIFT)));
        __m256i bits = _mm256_castps_si256(t);
        __m256i entry = _mm256_add_epi32(_mm256_permutevar8x32_epi32(table, bits), _mm256_slli_epi32(bits, 20));
        V value = fma(fma(g, g, set1(A)), g, set1(B));
        return {_mm256_castsi256_ps(entry), value};
    }
#else
    static constexpr float LOWEST = -126.0f;
    // No table: a polynomial of degree 6 on [-1/2, 1/2], error 2e-8.
    static constexpr float MAGIC = 12582912.0f;
    RELNET_INLINE Power operator()(V s, V x) const {
        V t = mul(s, x);
        V whole = add(t, set1(MAGIC));
        V rest = sub(t, sub(whole, set1(MAGIC)));
        V value = set1(1.5353362e-4f);
        for (float c : {1.3398874e-3f, 9.6184373e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.9314718e-1f, 1.0f})
            value = fma(value, rest, set1(c));
        I exponent = (((I)whole) << 23) + ((I)set1(1.0f));
        return {(V)exponent, value};
    }
#endif
};

// 2^t for any t: 0 below LOWEST, inf above the largest float, NaN for NaN.
RELNET_INLINE V any_power(const PowerOfTwo& power, V t) {
    Power e = power(set1(1.0f), min(set1(127.0f), max(set1(PowerOfTwo::LOWEST), t)));
    V value = mul(e.factor, e.value);
    value = positive_or(sub(set1(PowerOfTwo::LOWEST), t), zero(), value);
    // From 127 on in two steps: 2^127.9 is a float, and its exponent built by hand is not.
    V above = sub(t, set1(127.0f));
    Power rest = power(set1(1.0f), min(set1(1.0f), max(zero(), above)));
    V large = mul(mul(rest.factor, rest.value), set1(0x1p127f));
    return positive_or(above, positive_or(sub(above, set1(1.0f)), set1(INFINITY), large), value);
}

// exp(z) for z <= 0; NaN for NaN.
RELNET_INLINE V negative_exp(const PowerOfTwo& power, V z) {
#if defined(RELNET_AVX512)
    Power e = power(set1(LOG2_E), max(set1(-200.0f), z));  // What lies below underflows to 0 by itself.
    return mul(e.factor, e.value);
#else
    V t = mul(z, set1(LOG2_E));
    Power e = power(set1(1.0f), max(set1(PowerOfTwo::LOWEST), t));
    return positive_or(sub(set1(PowerOfTwo::LOWEST), t), zero(), mul(e.factor, e.value));
#endif
}

struct Exp {
    static constexpr float unit = LOG2_E;
    PowerOfTwo power;
    RELNET_INLINE V accumulate(V s, V x, V total) const {
        Power e = power(s, x);
        return fma(e.factor, e.value, total);
    }
    RELNET_INLINE V derivative(V s, V x, V g) const {
        Power e = power(s, x);
        return mul(e.value, mul(e.factor, g));
    }
};

// Without a pair norm, or with heads so wide that a normalised channel can leave the range of PowerOfTwo.
struct ExpAnywhere {
    static constexpr float unit = LOG2_E;
    PowerOfTwo power;
    RELNET_INLINE V accumulate(V s, V x, V total) const { return add(total, any_power(power, mul(s, x))); }
    RELNET_INLINE V derivative(V s, V x, V g) const { return mul(g, any_power(power, mul(s, x))); }
};

struct Relu {
    static constexpr float unit = 1.0f;
    RELNET_INLINE V accumulate(V s, V x, V total) const { return add(total, max(zero(), mul(s, x))); }
    RELNET_INLINE V derivative(V s, V x, V g) const { return clear_below(mul(s, x), g); }
};

// After a pair norm, where channels are about 1: exp(z) - 1 need not keep its digits near 0, but for 0 it is 0.
struct Elu {
    static constexpr float unit = LOG2_E;
    PowerOfTwo power;
    V one, error;  // What `power` makes of 0, rounded and what the rounding left out.
    Elu() {
        Power e = power(zero(), zero());
        one = mul(e.factor, e.value);
        error = fms(e.factor, e.value, one);
    }
    RELNET_INLINE Power below_one(V t) const { return power(set1(1.0f), min(zero(), t)); }
    RELNET_INLINE V accumulate(V s, V x, V total) const {
        V t = mul(s, x);
        Power e = below_one(t);
        return fma(set1(1.0f / LOG2_E), max(zero(), t), add(total, sub(fms(e.factor, e.value, one), error)));
    }
    RELNET_INLINE V derivative(V s, V x, V g) const {
        Power e = below_one(mul(s, x));
        return mul(e.value, mul(e.factor, g));
    }
};

struct EluAnywhere {
    static constexpr float unit = 1.0f;
    PowerOfTwo power;
    RELNET_INLINE V below_one(V z) const { return negative_exp(power, min(zero(), z)); }
    RELNET_INLINE V accumulate(V s, V x, V total) const {
        V z = mul(s, x);
        // Near 0 exp(z) - 1 would cancel: there its Taylor series, error 2e-8 at -1/2.
        V near = set1(1.9841270e-4f);
        for (float c : {1.3888889e-3f, 8.3333333e-3f, 4.1666667e-2f, 1.6666667e-1f, 0.5f, 1.0f}) near = fma(near, z, set1(c));
        V below = positive_or(sub(set1(-0.5f), z), sub(below_one(z), set1(1.0f)), mul(near, z));
        return add(total, positive_or(z, z, below));
    }
    RELNET_INLINE V derivative(V s, V x, V g) const {
        V z = mul(s, x);
        return positive_or(z, g, mul(g, below_one(z)));
    }
};

#if defined(RELNET_AVX512)

// A smooth function of t >= 0 by 32 polynomials: number k about t = k STEP, the last of them a constant, the function's limit. t is given
// in steps. Interpolated at the zeros of a Chebyshev polynomial; an even degree has one in the middle, where it is right.
template <int DEGREE>
struct Pieces {
    static constexpr double STEP = 3.0 / 16.0;
    struct Table {
        alignas(64) float entries[DEGREE + 1][32];
        template <class F>
        Table(F f, double limit) {
            double at[DEGREE + 1];
            for (int i = 0; i <= DEGREE; i++) {  // The middle first: f(0) = 0 stays exact.
                const int n = (i + DEGREE / 2) % (DEGREE + 1);
                at[i] = 2 * n == DEGREE ? 0.0 : 0.5 * std::cos((2 * n + 1) * std::acos(-1.0) / (2 * DEGREE + 2));
            }
            for (int k = 0; k < 32; k++) {
                double a[DEGREE + 1], c[DEGREE + 1] = {};
                for (int i = 0; i <= DEGREE; i++) a[i] = k == 31 ? limit : f(STEP * (k + at[i]));
                for (int level = 1; level <= DEGREE; level++)
                    for (int i = DEGREE; i >= level; i--) a[i] = (a[i] - a[i - 1]) / (at[i] - at[i - level]);
                for (int i = DEGREE; i >= 0; i--) {  // Newton's form to powers: c = c (t - at) + a.
                    for (int n = DEGREE; n > 0; n--) c[n] = c[n - 1] - at[i] * c[n];
                    c[0] = a[i] - at[i] * c[0];
                }
                for (int n = 0; n <= DEGREE; n++) entries[n][k] = float(c[n]);
            }
        }
    };
    V low[DEGREE + 1], high[DEGREE + 1];
    explicit Pieces(const Table& table) {
        for (int n = 0; n <= DEGREE; n++) low[n] = load(table.entries[n]), high[n] = load(table.entries[n] + 16);
    }
    // f(|t|); of NaN the limit.
    RELNET_INLINE V operator()(V t) const {
        constexpr float MAGIC = 12582912.0f;  // Leaves the nearest integer in the low bits of the sum.
        t = _mm512_range_ps(set1(31.0f), t, 0b1010);  // The smaller of both magnitudes, as a positive number.
        const V k = add(t, set1(MAGIC)), rest = _mm512_reduce_ps(t, 0);
        const auto entry = [&](int n) { return _mm512_permutex2var_ps(low[n], _mm512_castps_si512(k), high[n]); };
        V value = entry(DEGREE);
        RELNET_UNROLL for (int n = DEGREE - 1; n >= 0; n--) value = fma(value, rest, entry(n));
        return value;
    }
};

// The value, its sign turned where z is negative.
RELNET_INLINE V with_sign_of(V z, V value) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_castps_si512(value), _mm512_castps_si512(z), _mm512_castps_si512(set1(-0.0f)), 0x78));  // value ^ (z & sign)
}

// psi(z) = z Phi(z)        Phi(z) = 1/2 +- v(|z|) with v(t) = Phi(t) - 1/2, to 3e-7, to 1e-7 on average
// psi'(z) = 1/2 +- w(|z|) with w(t) = v(t) + t phi(t), to 2e-8, and to 2e-7 from t = 5.7 on, where it is its limit 1/2
// NORMED, after a pair norm: s carries the steps. Where it does not, z times them could leave the range of float.
template <bool NORMED>
struct GeluPieces {
    static constexpr double STEP = Pieces<3>::STEP, CARRIED = NORMED ? STEP : 1.0;
    static constexpr float unit = float(1.0 / CARRIED);
    Pieces<3> gate{gates()};
    Pieces<4> slope{slopes()};
    static const Pieces<3>::Table& gates() {
        static const Pieces<3>::Table table([](double t) { return CARRIED * 0.5 * std::erf(t * std::sqrt(0.5)); }, CARRIED * 0.5);
        return table;
    }
    static const Pieces<4>::Table& slopes() {
        static const Pieces<4>::Table table(
            [](double t) { return 0.5 * std::erf(t * std::sqrt(0.5)) + 0.3989422804014327 * t * std::exp(-0.5 * t * t); }, 0.5);
        return table;
    }
    RELNET_INLINE V in_steps(V z) const { return NORMED ? z : mul(z, set1(float(1.0 / STEP))); }
    RELNET_INLINE V accumulate(V s, V x, V total) const {
        V z = mul(s, x);
        return fma(z, add(with_sign_of(z, gate(in_steps(z))), set1(float(0.5 * CARRIED))), total);
    }
    RELNET_INLINE V derivative(V s, V x, V g) const {
        V z = mul(s, x);
        V value = add(with_sign_of(z, slope(in_steps(z))), set1(0.5f));
        // NaN, and of infinity as in the formula. After a pair norm w x, and s where it is NaN, bring it to the whole row.
        if (!NORMED) value = fma(z, zero(), value);
        return mul(g, value);
    }
};
using Gelu = GeluPieces<true>;
using GeluAnywhere = GeluPieces<false>;

#else

struct Gelu {
    static constexpr float unit = 1.0f;
    PowerOfTwo power;
    // Phi(z) = 1/2 + z P(z^2) on [-LIMIT, LIMIT], within 6e-8 of 0 or 1 beyond. P is a minimax fit in t = 2 z^2 / LIMIT^2 - 1: in powers of
    // z^2 itself its terms would cancel. Error 1e-7.
    static constexpr float LIMIT = 5.3f;
    RELNET_INLINE V normal_cdf(V z) const {
        V inside = min(set1(LIMIT), max(set1(-LIMIT), z));
        V t = fma(mul(inside, inside), set1(2.0f / (LIMIT * LIMIT)), set1(-1.0f));
        V value = set1(0.00028362072771415114f);
        for (float c : {-0.0007645621080882847f, 0.0007321099983528256f, -0.0010959587525576353f, 0.003134889993816614f,
                        -0.005849537905305624f, 0.008828194811940193f, -0.013185480609536171f, 0.018925826996564865f,
                        -0.02529829926788807f, 0.03207952156662941f, -0.03958893194794655f, 0.04926416277885437f,
                        -0.06651850789785385f, 0.1333925575017929f})
            value = fma(value, t, set1(c));
        value = fma(inside, value, set1(0.5f));
        return positive_or(sub(set1(-LIMIT), z), zero(), positive_or(sub(z, set1(LIMIT)), set1(1.0f), value));
    }
    RELNET_INLINE V accumulate(V s, V x, V total) const {
        V z = mul(s, x);
        return fma(z, normal_cdf(z), total);
    }
    RELNET_INLINE V derivative(V s, V x, V g) const {
        V z = mul(s, x);
        V half = mul(mul(z, z), set1(-0.5f * LOG2_E));
        Power e = power(set1(1.0f), max(set1(PowerOfTwo::LOWEST), half));
        V density = positive_or(sub(set1(PowerOfTwo::LOWEST), half), zero(), mul(mul(e.factor, e.value), set1(0.3989422804014327f)));
        return mul(g, fma(z, density, normal_cdf(z)));
    }
};

using GeluAnywhere = Gelu;

#endif

}  // namespace relnet::RELNET_ISA
