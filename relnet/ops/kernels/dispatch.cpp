// The library's C interface: picks the instruction set at run time. Linked against neither PyTorch nor Python.

#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "linear.h"
#include "norm.h"
#include "pages.h"
#include "parallel.h"
#include "relation.h"

namespace relnet {

TeamRunner team_runner = nullptr;
std::atomic<bool> forked{false};

#if defined(__x86_64__)
namespace avx512 {
extern const Kernels kernels;
extern const LinearKernels linear_kernels;
extern const NormKernels norm_kernels;
}
namespace avx2 {
extern const Kernels kernels;
extern const LinearKernels linear_kernels;
extern const NormKernels norm_kernels;
}
#endif
namespace baseline {
extern const Kernels kernels;
extern const LinearKernels linear_kernels;
extern const NormKernels norm_kernels;
}

namespace {

struct Named {
    const char* name;
    const Kernels* kernels;
    const LinearKernels* linear;
    const NormKernels* norm;
    bool supported;
};

const Named* known() {
#if defined(__x86_64__)
    static const Named all[] = {
        {"avx512", &avx512::kernels, &avx512::linear_kernels, &avx512::norm_kernels,
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl")},
        {"avx2", &avx2::kernels, &avx2::linear_kernels, &avx2::norm_kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {"baseline", &baseline::kernels, &baseline::linear_kernels, &baseline::norm_kernels, true},
        {nullptr, nullptr, nullptr, nullptr, false}};
#else
    static const Named all[] = {{"baseline", &baseline::kernels, &baseline::linear_kernels, &baseline::norm_kernels, true}, {nullptr, nullptr, nullptr, nullptr, false}};
#endif
    return all;
}

const Named* find(const char* name) {
    for (const Named* isa = known(); isa->name; isa++)
        if (isa->supported && (!name || !std::strcmp(name, isa->name))) return isa;
    return nullptr;
}

const Named* chosen = find(nullptr);
const int watch_forks = pthread_atfork(nullptr, nullptr, [] { forked.store(true); });

}  // namespace
}  // namespace relnet

extern "C" {

// The instruction set in use.
const char* relnet_isa() { return relnet::chosen->name; }

// Ask for large pages under memory that has not been written yet.
void relnet_prefer_large_pages(void* memory, size_t bytes) { relnet::prefer_large_pages(memory, bytes); }

// Use another one; 1 where this machine does not have it.
int relnet_choose_isa(const char* name) {
    const auto* isa = relnet::find(name);
    if (!isa) return 1;
    relnet::chosen = isa;
    return 0;
}

// GOMP_parallel of the OpenMP library that is loaded already.
void relnet_use_team(void* runner) { relnet::team_runner = reinterpret_cast<relnet::TeamRunner>(runner); }

// No exception leaves the library: what can be thrown is thrown for lack of memory or of threads.
int relnet_relation_forward(const RelnetRelation* a, void* y) try {
    return relnet::chosen->kernels->forward(*a, y);
} catch (...) {
    return 1;
}

int relnet_relation_backward(const RelnetRelation* a, const void* grad, void* grad_source, void* grad_target) try {
    return relnet::chosen->kernels->backward(*a, grad, grad_source, grad_target);
} catch (...) {
    return 1;
}

int relnet_linear_forward(const RelnetLinear* a, void* y, float* log_sum, int64_t* count) try {
    return relnet::chosen->linear->forward(*a, y, log_sum, count);
} catch (...) {
    return 1;
}

int relnet_linear_backward(
    const RelnetLinear* a, const void* grad, const float* grad_log_sum, void* grad_source, void* grad_target, float* grad_past) try {
    return relnet::chosen->linear->backward(*a, grad, grad_log_sum, grad_source, grad_target, grad_past);
} catch (...) {
    return 1;
}

int relnet_norm_forward(const RelnetNorm* a, void* y) try {
    return relnet::chosen->norm->forward(*a, y);
} catch (...) {
    return 1;
}

int relnet_norm_backward(const RelnetNorm* a, const void* grad, void* grad_x) try {
    return relnet::chosen->norm->backward(*a, grad, grad_x);
} catch (...) {
    return 1;
}
}
