// What several kernels do with one row of numbers: its sum, its largest, the sum of its exponentials.
#pragma once

#include "kernels/cpu/isa/vector_math.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

inline constexpr float infinity = __builtin_inff();

/// out = a + b
template <class T>
PENSTOCK_INLINE void add_row(Index n, const T* a, const T* b, T* out) {
  for_lanes(
      n, [&](Index i, Index count) __attribute__((always_inline)) {
        store(out + i, load(a + i, count) + load(b + i, count), count);
      });
}

/// Sum in double.
template <class T>
PENSTOCK_INLINE double row_sum(const T* row, Index n) {
  Doubles low{}, high{};
  for_lanes(
      n, [&](Index i, Index count) __attribute__((always_inline)) {
        const DoublePair v = load_double(row + i, count);
        low += v.low;
        high += v.high;
      });
  return sum(low + high);
}

/// Sum of a * b in double.
template <class T>
PENSTOCK_INLINE double row_product(const T* a, const T* b, Index n) {
  Doubles low{}, high{};
  for_lanes(
      n, [&](Index i, Index count) __attribute__((always_inline)) {
        const DoublePair p = load_double(a + i, count), q = load_double(b + i, count);
        low += p.low * q.low;
        high += p.high * q.high;
      });
  return sum(low + high);
}

/// The largest, -infinity of nothing. (A NaN may hide it.)
template <class T>
PENSTOCK_INLINE float row_largest(const T* row, Index n) {
  Floats top = splat(-infinity);
  for_lanes(
      n, [&](Index i, Index count)
             __attribute__((always_inline)) { top = larger(top, load(row + i, count, -infinity)); });
  return maximum(top);
}

/// Sum of e^(row - shift), chains of 64 additions in fp32 and their sums in double: a long row costs no
/// digits. `each(i, exponentials, count)` sees them on the way.
template <class T, class Each>
PENSTOCK_INLINE double exponential_sum(const T* row, Index n, float shift, Each&& each) {
  constexpr Index stretch = 64 * lanes;
  double total = 0;
  for (Index begin = 0; begin < n; begin += stretch) {
    Floats part{};
    for_lanes(
        n - begin < stretch ? n - begin : stretch, [&](Index i, Index count) __attribute__((always_inline)) {
          const Floats e = exponential(load(row + begin + i, count, -infinity) - splat(shift));
          each(begin + i, e, count);
          part += e;
        });
    total += static_cast<double>(sum(part));
  }
  return total;
}
template <class T>
PENSTOCK_INLINE double exponential_sum(const T* row, Index n, float shift) {
  return exponential_sum(row, n, shift, [](Index, const Floats&, Index) __attribute__((always_inline)){});
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
