// What the kernels of the linear form take, and their entry points. Plain C types: Python fills this through ctypes.
#pragma once

#include <cstdint>

extern "C" {

// Tensors are (batch, length, width) with channels side by side; source, target and the gradient have strides of their own, in elements,
// for batch and length, results are contiguous. 0 is returned, or 1 where there was no memory.
struct RelnetLinear {
    const void* source;          // p, length T
    const void* target;          // q, length S
    const uint8_t* key_mask;     // (batch, T), 1 = real, or null
    const float* past;           // (batch, width): log sum of what came before, or null
    const int64_t* past_count;   // (batch): how many sources that was, or null
    int64_t batch, num_sources, num_targets, width;
    int64_t source_strides[2], target_strides[2], grad_strides[2];
    int32_t causal;
    int32_t mean;                // the result is y itself; 0 = its logarithm
    int32_t bfloat16;            // storage of source, target and results; 0 = float32
    int32_t num_threads;
    // Maximum and sum before each tile of sources, (batch, tiles, 2, width); not causal: after all, (batch, 1, 2, width). Or null.
    float* kept;
};
}

namespace relnet {

constexpr int LINEAR_TILE = 32;  // Positions a tile: known to Python too.

struct LinearKernels {
    // log_sum (batch, width) and count (batch): the state after the last source; null where it is not asked for.
    int (*forward)(const RelnetLinear&, void* y, float* log_sum, int64_t* count);
    // grad, grad_log_sum: of y and of the state, each may be null. grad_target is written for the mean only; grad_past may be null.
    int (*backward)(
        const RelnetLinear&, const void* grad, const float* grad_log_sum, void* grad_source, void* grad_target, float* grad_past);
};

}  // namespace relnet
