// The floor of the relation op: the kernels' own exp from registers and nothing else, `count` times a vector, `terms` exps a time.
#include <cstdint>

#include "activations.h"

using namespace relnet::RELNET_ISA;

extern "C" float exp_floor(int64_t count) {
    const Exp psi{};
    constexpr int N = 8;  // Sums side by side: enough of them to hide the latency.
    V x[N], total[N], s = set1(1.0001f);
    for (int n = 0; n < N; n++) x[n] = set1(0.01f * float(n)), total[n] = zero();
    for (int64_t k = 0; k < count; k += N * W) {
        RELNET_UNROLL for (int n = 0; n < N; n++) total[n] = psi.accumulate(s, x[n], total[n]);
        s = add(s, set1(1e-7f));
    }
    V all = total[0];
    for (int n = 1; n < N; n++) all = add(all, total[n]);
    return sum(all);
}
