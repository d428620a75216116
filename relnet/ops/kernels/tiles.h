// The loops over pairs, a few targets by many sources at a time. Letters: p a source row, q a target row, both centred and padded;
// x = p + q; s = unit * (|x|^2 / d)^-1/2 (unit: log2(e) for exp), or unit without a pair norm; R targets, NV vectors of channels a step.
#pragma once

#include <algorithm>

#include "activations.h"

namespace relnet::RELNET_ISA {

constexpr int BLOCK = 16;  // Sources a block of the backward pass.
// Terms a partial sum: one running sum over thousands of terms would lose digits to rounding (a 1.5e-6 gradient at 2,000 sources).
constexpr int PARTIAL = 256;

// scales[r][i] for R targets and sources [first, last), by the direct sum of x^2: p.q would cancel at the pairs that matter.
template <int R>
inline void scale_tile(const float* q, const float* p, float* scales, size_t stride, int d, int first, int last, float unit) {
    const int width = padded(d);
    for (int i0 = first; i0 < last; i0 += W) {
        const int num = std::min(W, last - i0);
        V squares[R][W];
        for (int i = 0; i < W; i++) {
            V total[R];
            RELNET_UNROLL for (int r = 0; r < R; r++) total[r] = zero();
            if (i < num) {
                const float* source = p + size_t(i0 + i) * width;
                for (int h = 0; h < width; h += W) {
                    V P = load(source + h);
                    RELNET_UNROLL for (int r = 0; r < R; r++) {
                        V x = add(P, load(q + size_t(r) * width + h));
                        total[r] = fma(x, x, total[r]);
                    }
                }
            }
            RELNET_UNROLL for (int r = 0; r < R; r++) squares[r][i] = total[r];
        }
        RELNET_UNROLL for (int r = 0; r < R; r++) {
            alignas(64) float found[W];
            store(found, mul(inverse_root(mul(sums(squares[r]), set1(1.0f / d))), set1(unit)));
            std::copy(found, found + num, scales + r * stride + i0);
        }
    }
}

// y[r] += sum over sources [first, last) of psi(s x), channels [h, h + NV W), from at most PARTIAL sources.
template <int R, int NV, class Psi>
RELNET_INLINE void forward_channels(
    const Psi& psi, const float* q, const float* p, const float* scales, size_t stride, float* y, int width, int h, int first, int last) {
    V total[R][NV];
    RELNET_UNROLL for (int r = 0; r < R; r++)
        RELNET_UNROLL for (int v = 0; v < NV; v++) total[r][v] = zero();
    for (int i = first; i < last; i++) {
        V P[NV];
        RELNET_UNROLL for (int v = 0; v < NV; v++) P[v] = load(p + size_t(i) * width + h + v * W);
        RELNET_UNROLL for (int r = 0; r < R; r++) {
            V s = set1(scales[r * stride + i]);
            RELNET_UNROLL for (int v = 0; v < NV; v++) {
                V x = add(P[v], load(q + size_t(r) * width + h + v * W));
                total[r][v] = psi.accumulate(s, x, total[r][v]);
            }
        }
    }
    RELNET_UNROLL for (int r = 0; r < R; r++)
        RELNET_UNROLL for (int v = 0; v < NV; v++) add_to(y + size_t(r) * width + h + v * W, total[r][v]);
}

template <int R, class Psi>
inline void forward_tile(
    const Psi& psi, const float* q, const float* p, const float* scales, size_t stride, float* y, int width, int first, int last) {
    for (; first < last; first += PARTIAL) {
        const int end = std::min(last, first + PARTIAL);
        int h = 0;
        for (; h + 2 * W <= width; h += 2 * W) forward_channels<R, 2>(psi, q, p, scales, stride, y, width, h, first, end);
        if (h < width) forward_channels<R, 1>(psi, q, p, scales, stride, y, width, h, first, end);
    }
}

// dz = g psi'(s x); gradient of p_i += s dz, of q_r += s dz, moment[r][i] += dz x (summed over channels later). EDGE: some pairs are
// invalid; their x and dz become 0, whatever they were.
template <int R, int NV, bool EDGE, class Psi>
RELNET_INLINE void backward_channels(
    const Psi& psi, const float* q, const float* g, float* grad_q, const float* p, float* grad_p, const float (*scales)[BLOCK],
    const float (*valid)[BLOCK], V (*moments)[BLOCK], int width, int h, int num) {
    V total[R][NV];
    RELNET_UNROLL for (int r = 0; r < R; r++)
        RELNET_UNROLL for (int v = 0; v < NV; v++) total[r][v] = zero();
    for (int i = 0; i < num; i++) {
        const size_t at = size_t(i) * width + h;
        V P[NV], D[NV];
        RELNET_UNROLL for (int v = 0; v < NV; v++) P[v] = load(p + at + v * W), D[v] = load(grad_p + at + v * W);
        RELNET_UNROLL for (int r = 0; r < R; r++) {
            V s = set1(scales[r][i]), moment = moments[r][i];
            RELNET_UNROLL for (int v = 0; v < NV; v++) {
                const size_t channel = size_t(r) * width + h + v * W;
                V x = add(P[v], load(q + channel));
                if (EDGE) x = bit_and(x, set1(valid[r][i]));
                V dz = psi.derivative(s, x, load(g + channel));
                if (EDGE) dz = bit_and(dz, set1(valid[r][i]));
                D[v] = fma(s, dz, D[v]);
                total[r][v] = fma(s, dz, total[r][v]);
                moment = fma(dz, x, moment);
            }
            moments[r][i] = moment;
        }
        RELNET_UNROLL for (int v = 0; v < NV; v++) store(grad_p + at + v * W, D[v]);
    }
    RELNET_UNROLL for (int r = 0; r < R; r++)
        RELNET_UNROLL for (int v = 0; v < NV; v++) add_to(grad_q + size_t(r) * width + h + v * W, total[r][v]);
}

// Gradients of p_i and q_r -= w x. Taken apart, w p + w q would be two matrix products and one addition less, and cancel at retrieved pairs.
template <int R, int NV, bool EDGE>
RELNET_INLINE void weight_channels(
    const float* q, float* grad_q, const float* p, float* grad_p, const float (*weights)[BLOCK], const float (*valid)[BLOCK], int width,
    int h, int num) {
    V Q[R][NV], total[R][NV];
    RELNET_UNROLL for (int r = 0; r < R; r++) RELNET_UNROLL for (int v = 0; v < NV; v++) {
        Q[r][v] = load(q + size_t(r) * width + h + v * W);
        total[r][v] = zero();
    }
    for (int i = 0; i < num; i++) {
        RELNET_UNROLL for (int v = 0; v < NV; v++) {
            const size_t at = size_t(i) * width + h + v * W;
            V P = load(p + at), D = load(grad_p + at);
            RELNET_UNROLL for (int r = 0; r < R; r++) {
                V w = set1(weights[r][i]);
                V x = add(P, Q[r][v]);
                if (EDGE) x = bit_and(x, set1(valid[r][i]));
                D = fnma(w, x, D);
                total[r][v] = fnma(w, x, total[r][v]);
            }
            store(grad_p + at, D);
        }
    }
    RELNET_UNROLL for (int r = 0; r < R; r++)
        RELNET_UNROLL for (int v = 0; v < NV; v++) add_to(grad_q + size_t(r) * width + h + v * W, total[r][v]);
}

// R targets by `num` <= BLOCK sources: adds unit * dL/dx of each pair to the gradients of its source and its target. With a pair norm
//     c = sum_h dz x      w = c s^3 / d      dL/dx = s dz - w x
// scales is 0 at invalid pairs, which therefore contribute 0; with EDGE `valid` masks their bits.
template <int R, bool EDGE, class Psi>
inline void backward_tile(
    const Psi& psi, const float* q, const float* g, float* grad_q, const float* p, float* grad_p, const float (*scales)[BLOCK],
    const float (*valid)[BLOCK], int d, int num, bool normed) {
    const int width = padded(d);
    V moments[R][BLOCK];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < BLOCK; i++) moments[r][i] = zero();
    int h = 0;
    for (; h + 2 * W <= width; h += 2 * W)
        backward_channels<R, 2, EDGE>(psi, q, g, grad_q, p, grad_p, scales, valid, moments, width, h, num);
    if (h < width) backward_channels<R, 1, EDGE>(psi, q, g, grad_q, p, grad_p, scales, valid, moments, width, h, num);
    if (!normed) return;
    // s carries the unit, and so will the result: two of the three units of s^3 are taken out here.
    const V factor = set1(1.0f / (Psi::unit * Psi::unit * d));
    alignas(64) float weights[R][BLOCK];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < BLOCK; i += W) {
            V s = load(scales[r] + i);
            // (c s) first: s^3 alone overflows from a variance of 2e-26.
            store(weights[r] + i, mul(mul(mul(mul(sums(moments[r] + i), s), factor), s), s));
        }
    for (h = 0; h + 2 * W <= width; h += 2 * W) weight_channels<R, 2, EDGE>(q, grad_q, p, grad_p, weights, valid, width, h, num);
    if (h < width) weight_channels<R, 1, EDGE>(q, grad_q, p, grad_p, weights, valid, width, h, num);
}

}  // namespace relnet::RELNET_ISA
