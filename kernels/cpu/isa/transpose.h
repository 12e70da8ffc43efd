// Transpose of a square of floats in registers.
#pragma once

#include <utility>

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

/// a0 b0 a1 b1 ... from the low (Half 0) or the high (Half 1) halves of a and b.
template <int Half, int... I>
PENSTOCK_INLINE Floats interleave(const Floats& a, const Floats& b, std::integer_sequence<int, I...>) {
  constexpr int first = Half * static_cast<int>(lanes) / 2;
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (first + I / 2 + I % 2 * static_cast<int>(lanes))...);
#else
  return __builtin_shuffle(a, b, Ints{(first + I / 2 + I % 2 * static_cast<int>(lanes))...});
#endif
}

/// rows[i][j] becomes rows[j][i]. Rows r and r + n/2 are interleaved log2(n) times: each pass rotates the
/// bits of an element's address (row, lane) by one, and as many passes as a lane number has bits exchange row
/// and lane.
PENSTOCK_INLINE void transpose(Floats (&rows)[lanes]) {
  constexpr auto indices = std::make_integer_sequence<int, static_cast<int>(lanes)>{};
  for (Index pass = 1; pass < lanes; pass *= 2) {
    Floats next[lanes];
    for (Index r = 0; r < lanes / 2; ++r) {
      next[2 * r] = interleave<0>(rows[r], rows[r + lanes / 2], indices);
      next[2 * r + 1] = interleave<1>(rows[r], rows[r + lanes / 2], indices);
    }
    for (Index r = 0; r < lanes; ++r) rows[r] = next[r];
  }
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
