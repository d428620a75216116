// The natural logarithm on vectors.
#pragma once

#include "simd.h"

namespace relnet::RELNET_ISA {

// log v for positive normal numbers, error 1e-8 beside the rounding of the result; NaN for NaN. With v = 2^k (1 + r), r in [-1/4, 1/2):
// log v = k log 2 + r P(r), P a minimax fit that weighs r, so that log 1 is 0 and log(1 + r) close to 1 keeps its digits.
RELNET_INLINE V logarithm(V v) {
    V exponent, mantissa;
    split(v, exponent, mantissa);
    V r = sub(mantissa, set1(1.0f));
    V value = set1(0.0516025647521019f);
    for (float c : {-0.11915203183889389f, 0.15049706399440765f, -0.1686873733997345f, 0.1997394561767578f, -0.24990014731884003f,
                    0.33333584666252136f, -0.5000013113021851f, 1.0f})
        value = fma(value, r, set1(c));
    return fma(value, r, mul(exponent, set1(0.6931471805599453f)));
}

}  // namespace relnet::RELNET_ISA
