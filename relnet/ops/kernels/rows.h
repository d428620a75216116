// Rows of d channels in memory and in scratch: float32 or bfloat16 outside, float32 padded with zeros to whole vectors inside.
#pragma once

#include "simd.h"

namespace relnet::RELNET_ISA {

struct BFloat16 {
    uint16_t bits;
};

RELNET_INLINE float to_float(float x) { return x; }
RELNET_INLINE float to_float(BFloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
RELNET_INLINE void from_float(float x, float& out) { out = x; }
RELNET_INLINE void from_float(float x, BFloat16& out) {  // To the nearest, ties to even; NaN stays NaN.
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    out.bits = x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

RELNET_INLINE V load_as(const float* x) { return load(x); }
RELNET_INLINE V load_as(const BFloat16* x) {
    float values[W];
    for (int l = 0; l < W; l++) values[l] = to_float(x[l]);
    return load(values);
}
RELNET_INLINE V load_part(const BFloat16* x, int num) {
    float values[W] = {};
    for (int l = 0; l < num; l++) values[l] = to_float(x[l]);
    return load(values);
}
RELNET_INLINE void store_as(float* x, V v) { store(x, v); }
RELNET_INLINE void store_part(BFloat16* x, V v, int num) {
    float values[W];
    store(values, v);
    for (int l = 0; l < num; l++) from_float(values[l], x[l]);
}
RELNET_INLINE void store_as(BFloat16* x, V v) { store_part(x, v, W); }

constexpr int padded(int d) { return (d + W - 1) / W * W; }

RELNET_INLINE float row_mean(const float* x, int d) {  // Padding is 0 and does not count.
    // Four sums at a time: one would wait for its own last addition.
    V total[4] = {zero(), zero(), zero(), zero()};
    const int width = padded(d);
    int h = 0;
    for (; h + 4 * W <= width; h += 4 * W)
        RELNET_UNROLL for (int k = 0; k < 4; k++) total[k] = add(total[k], load(x + h + k * W));
    for (; h < width; h += W) total[0] = add(total[0], load(x + h));
    return sum(add(add(total[0], total[1]), add(total[2], total[3]))) / float(d);
}

// out = in, centred if asked for. Seen from its first entry a row of equal ones is exactly 0, and its mean is as small as its spread.
template <class T>
inline void read_row(const T* in, float* out, int d, bool centred) {
    float first = centred ? to_float(in[0]) : 0.0f;
    for (int h = 0; h < d; h++) out[h] = to_float(in[h]) - first;
    for (int h = d; h < padded(d); h++) out[h] = 0.0f;
    if (!centred) return;
    // Twice: what the first mean is off by is the same in all channels, and adds up where a pair nearly cancels.
    for (int pass = 0; pass < 2; pass++) {
        const float mean = row_mean(out, d);
        for (int h = 0; h < d; h++) out[h] -= mean;
    }
}

// out = factor * gradient, centred if asked for. The padding of a gradient is 0.
template <class T>
inline void write_gradient(const float* gradient, float factor, T* out, int d, bool centred) {
    const float mean = centred ? row_mean(gradient, d) : 0.0f;
    for (int h = 0; h < d; h++) from_float(factor * (gradient[h] - mean), out[h]);
}

}  // namespace relnet::RELNET_ISA
