// Walking strided operands along a contiguous result: what the elementwise kernels with broadcasting share.
// All elements go through one vector of lanes, whatever the strides, so that an element's bits do not depend
// on the layout of its operands.
#pragma once

#include "kernels/cpu/isa/lanes.h"
#include "kernels/strided.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

/// `count` elements `stride` apart, at most a vector, as floats; 0 or the repeated value in the lanes after
/// them.
template <class T>
PENSTOCK_INLINE Floats load_strided(const T* p, Index stride, Index count) {
  const auto number = [](T value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<float>(value);
    else
      return widened(value);
  };
  if constexpr (!std::is_integral_v<T>)
    if (stride == 1) return load(p, count);
  if (stride == 0) return splat(number(*p));
  Floats v{};
  for (Index i = 0; i < count; ++i) v[i] = number(p[i * stride]);
  return v;
}

/// Calls body(to, count, offset) for runs of the innermost dimension: `count` elements of the result from
/// `to`, the operands' elements from offset[k]. Cut into tasks by the number of elements alone.
template <int Operands, class Body>
PENSTOCK_INLINE void for_runs(Stream& stream, const StridedShape& s, Body&& body) {
  const int last = s.rank - 1;
  stream.pool().parallel_ranges(s.numel, piece, [&](Index begin, Index end) {
    Index at[Shape::max_rank] = {}, offset[Operands] = {};
    Index rest = begin;
    for (int d = last; d >= 0; --d) {
      at[d] = rest % s.sizes[d];
      rest /= s.sizes[d];
      for (int k = 0; k < Operands; ++k) offset[k] += at[d] * s.strides[k][d];
    }
    while (begin < end) {
      const Index run = s.sizes[last] - at[last], count = run < end - begin ? run : end - begin;
      body(begin, count, offset);
      begin += count;
      at[last] += count;
      for (int k = 0; k < Operands; ++k) offset[k] += count * s.strides[k][last];
      for (int d = last; d > 0 && at[d] == s.sizes[d]; --d) {
        at[d] = 0;
        ++at[d - 1];
        for (int k = 0; k < Operands; ++k) offset[k] += s.strides[k][d - 1] - s.sizes[d] * s.strides[k][d];
      }
    }
  });
}

/// y = f(x, count) for vectors of lanes.
template <class T, class Function>
PENSTOCK_INLINE void map(Stream& stream, const StridedShape& s, const T* x, T* y, Function&& f) {
  const Index step = s.strides[0][s.rank - 1];
  for_runs<1>(
      stream, s, [&](Index to, Index run, const Index* offset) __attribute__((always_inline)) {
        for_lanes(
            run, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats v = load_strided(x + offset[0] + i * step, step, count);
              store(y + to + i, f(v, count), count);
            });
      });
}

/// y = f(a, b, count)
template <class T, class Function>
PENSTOCK_INLINE void map(Stream& stream, const StridedShape& s, const T* a, const T* b, T* y, Function&& f) {
  const Index step_a = s.strides[0][s.rank - 1], step_b = s.strides[1][s.rank - 1];
  for_runs<2>(
      stream, s, [&](Index to, Index run, const Index* offset) __attribute__((always_inline)) {
        for_lanes(
            run, [&](Index i, Index count) __attribute__((always_inline)) {
              const Floats va = load_strided(a + offset[0] + i * step_a, step_a, count);
              const Floats vb = load_strided(b + offset[1] + i * step_b, step_b, count);
              store(y + to + i, f(va, vb, count), count);
            });
      });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
