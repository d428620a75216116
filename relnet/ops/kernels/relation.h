// What the kernels take, and their entry points, one pair an instruction set. Plain C types: Python fills this through ctypes.
#pragma once

#include <cstdint>

extern "C" {

// Rows lie as (batch, length, heads, d), contiguous but for room behind each batch row of the sources. 0 is returned, or 1 where there was no memory.
struct RelnetRelation {
    const void* source;         // p, length T
    const void* target;         // q, length S
    const uint8_t* key_mask;    // (batch, T), 1 = real, or null
    const int64_t* windows;     // (heads), 0 = no limit, or null
    int64_t batch, heads, num_sources, num_targets, d;
    int64_t source_stride;      // numbers from one batch row of the sources to the next
    int32_t activation;         // 0 exp, 1 relu, 2 elu, 3 gelu
    int32_t norm;               // 0 none, 1 rms, 2 exact
    int32_t causal;
    int32_t bfloat16;           // storage of source, target and results; 0 = float32
    int32_t num_threads;
    float* scales;              // (batch, heads, S, T): s of each valid pair by the rank of its source, kept for the backward pass; or null
};
}

namespace relnet {

struct Kernels {
    int (*forward)(const RelnetRelation&, void* y);
    int (*backward)(const RelnetRelation&, const void* grad, void* grad_source, void* grad_target);
};

}  // namespace relnet
