// What the kernels of the plain layer norm take, and their entry points. Plain C types: Python fills this through ctypes.
#pragma once

#include <cstdint>

extern "C" {

// x, the gradient and the results are (rows, width), contiguous. 0 is returned, or 1 where there was no memory.
struct RelnetNorm {
    const void* x;
    int64_t rows, width;
    int32_t bfloat16;  // storage; 0 = float32
    int32_t num_threads;
};
}

namespace relnet {

struct NormKernels {
    int (*forward)(const RelnetNorm&, void* y);
    int (*backward)(const RelnetNorm&, const void* grad, void* grad_x);
};

}  // namespace relnet
