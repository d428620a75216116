// The plain layer norm and its gradient, compiled once for each instruction set (RELNET_ISA).
//
//     c = x - mean(x)        r = mean(c^2) <= 0 ? 0 : mean(c^2)^-1/2        y = r c
//     dL/dx = r (g - mean(g) - y mean(g y))                                 g = dL/dy
//
// A row is computed from itself alone, so no bit depends on the others or on the threads. The gradient computes c and r again: a row is read
// from memory once, and the rest happens in the nearest cache.

#include "norm.h"

#include <algorithm>
#include <cmath>

#include "pages.h"
#include "parallel.h"
#include "rows.h"

namespace relnet::RELNET_ISA {

namespace {

// Four sums at a time: one would wait for its own last addition. f(h, load, store) gives what is summed of channels h to h + W; rows in
// memory end where they end, rows in scratch are padded with zeros.
template <class F>
RELNET_INLINE float sum_over(int d, F&& f) {
    V total[4] = {zero(), zero(), zero(), zero()};
    int h = 0;
    for (; h + 4 * W <= d; h += 4 * W)
        RELNET_UNROLL for (int k = 0; k < 4; k++) total[k] = add(total[k], f(h + k * W, W));
    for (; h + W <= d; h += W) total[0] = add(total[0], f(h, W));
    if (h < d) total[1] = add(total[1], f(h, d - h));
    return sum(add(add(total[0], total[1]), add(total[2], total[3])));
}

template <class T>
RELNET_INLINE V read(const T* x, int num) {
    return num == W ? load_as(x) : load_part(x, num);
}

template <class T>
RELNET_INLINE void write(T* x, V v, int num) {
    num == W ? store_as(x, v) : store_part(x, v, num);
}

// Write the centred row and return r. Seen from its first entry a row of equal ones is exactly 0, and its mean is as small as its spread.
template <class T>
RELNET_INLINE float centre(const T* x, float* c, int d) {
    const V first = set1(to_float(x[0]));
    const V mean = set1(sum_over(d, [&](int h, int num) {
        V v = sub(read(x + h, num), first);
        // Channels past the end count as 0.
        if (num < W) store(c + h, v), v = load_part(c + h, num);
        store(c + h, v);
        return v;
    }) / float(d));
    const float square = sum_over(d, [&](int h, int num) {
        V v = sub(load(c + h), mean);
        if (num < W) store(c + h, v), v = load_part(c + h, num);
        store(c + h, v);
        return mul(v, v);
    }) / float(d);
    // Never "> 0 ? .. : 0": NaN must stay NaN.
    return square <= 0.0f ? 0.0f : 1.0f / std::sqrt(square);
}

template <class F>
RELNET_INLINE void each_vector(int d, F&& f) {
    int h = 0;
    for (; h + W <= d; h += W) f(h, W);
    if (h < d) f(h, d - h);
}

// Runs work(row, scratch of a row) for all rows. Few are not worth waking a thread.
template <class T, class Work>
int run(const RelnetNorm& a, void* result, Work&& work) {
    const int64_t size = a.rows * a.width, rows_an_item = std::max<int64_t>(1, 8192 / a.width);
    prefer_large_pages(result, size_t(size) * sizeof(T));
    std::atomic<int> failed{0};
    parallel(size < 32768 ? 1 : a.num_threads, (a.rows + rows_an_item - 1) / rows_an_item, [&](int64_t item) {
        float* memory = scratch(padded(int(a.width)));
        if (!memory) return failed.store(1);
        for (int64_t row = item * rows_an_item; row < std::min(a.rows, (item + 1) * rows_an_item); row++) work(row * a.width, memory);
    });
    return failed;
}

template <class T>
int forward(const RelnetNorm& a, void* y) {
    const int d = int(a.width);
    return run<T>(a, y, [&](int64_t at, float* c) {
        const V r = set1(centre(static_cast<const T*>(a.x) + at, c, d));
        T* out = static_cast<T*>(y) + at;
        each_vector(d, [&](int h, int num) { write(out + h, mul(r, load(c + h)), num); });
    });
}

template <class T>
int backward(const RelnetNorm& a, const void* grad, void* grad_x) {
    const int d = int(a.width);
    return run<T>(a, grad_x, [&](int64_t at, float* c) {
        const float r = centre(static_cast<const T*>(a.x) + at, c, d);
        const T* g = static_cast<const T*>(grad) + at;
        T* out = static_cast<T*>(grad_x) + at;
        const V mean = set1(sum_over(d, [&](int h, int num) { return read(g + h, num); }) / float(d));
        const float moment = sum_over(d, [&](int h, int num) { return mul(read(g + h, num), load(c + h)); }) / float(d);
        // y = r c, twice: in the moment and beside it.
        const V scale = set1(r), slope = set1(r * moment * r);
        each_vector(d, [&](int h, int num) { write(out + h, mul(scale, fnma(slope, load(c + h), sub(read(g + h, num), mean))), num); });
    });
}

int forward_any(const RelnetNorm& a, void* y) { return a.bfloat16 ? forward<BFloat16>(a, y) : forward<float>(a, y); }

int backward_any(const RelnetNorm& a, const void* grad, void* grad_x) {
    return a.bfloat16 ? backward<BFloat16>(a, grad, grad_x) : backward<float>(a, grad, grad_x);
}

}  // namespace

extern const NormKernels norm_kernels{forward_any, backward_any};

}  // namespace relnet::RELNET_ISA
