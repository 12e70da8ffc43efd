// Reductions over the middle dimension, see kernels/reduction.h.
#include "kernels/reduction.h"

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/isa/rows.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

constexpr Index strip = 64;  // columns that a task sums side by side

/// The larger, NaN before all.
PENSTOCK_INLINE Floats larger_or_nan(const Floats& top, const Floats& v) {
  return ((v > top) | (v != v)) ? v : top;
}

template <class T>
float row_max(const T* x, Index n) {
  Floats top = splat(-infinity);
  for_lanes(
      n, [&](Index i, Index count)
             __attribute__((always_inline)) { top = larger_or_nan(top, load(x + i, count, -infinity)); });
  float largest = top[0];
  for (int i = 1; i < lanes; ++i) largest = top[i] > largest || top[i] != top[i] ? top[i] : largest;
  return largest;
}

template <class T, class Sum>
void reduce_sum_of(Stream& stream, const ReduceShape& shape, double divisor, const T* px, double* partial,
                   Sum* py) {
  const Index outer = shape.outer, count = shape.count, inner = shape.inner;
  if (inner != 1) {
    const Index strips = (inner + strip - 1) / strip;
    stream.pool().parallel_for(outer * strips, [=](Index task) {
      const Index o = task / strips, begin = task % strips * strip;
      const Index width = inner - begin < strip ? inner - begin : strip;
      double total[strip] = {};
      for (Index k = 0; k < count; ++k) {
        const T* from = px + (o * count + k) * inner + begin;
        if (width == strip)
          for (Index i = 0; i < strip; ++i) total[i] += static_cast<double>(widened(from[i]));
        else
          for (Index i = 0; i < width; ++i) total[i] += static_cast<double>(widened(from[i]));
      }
      for (Index i = 0; i < width; ++i)
        py[o * inner + begin + i] = narrowed<Sum>(static_cast<float>(total[i] / divisor));
    });
    return;
  }
  if (count <= reduce_sum_block) {
    stream.pool().parallel_ranges(outer, rows_per_task(count), [=](Index begin, Index end) {
      for (Index o = begin; o < end; ++o)
        py[o] = narrowed<Sum>(static_cast<float>(row_sum(px + o * count, count) / divisor));
    });
    return;
  }
  const Index blocks = (count + reduce_sum_block - 1) / reduce_sum_block;
  stream.pool().parallel_for(outer * blocks, [=](Index task) {
    const Index o = task / blocks, begin = task % blocks * reduce_sum_block;
    const Index length = count - begin < reduce_sum_block ? count - begin : reduce_sum_block;
    partial[task] = row_sum(px + o * count + begin, length);
  });
  for (Index o = 0; o < outer; ++o) {
    double total = 0;
    for (Index block = 0; block < blocks; ++block) total += partial[o * blocks + block];
    py[o] = narrowed<Sum>(static_cast<float>(total / divisor));
  }
}

}  // namespace

void reduce_sum(Stream& stream, const ReduceShape& shape, double divisor, In x, Out workspace, Out y) {
  double* partial = values<double>(workspace);
  for_storage(x.dtype, [&]<class T>() {
    for_storage(y.dtype, [&]<class Sum>() {
      reduce_sum_of(stream, shape, divisor, values<T>(x), partial, values<Sum>(y));
    });
  });
}

void reduce_max(Stream& stream, const ReduceShape& shape, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const Index outer = shape.outer, count = shape.count, inner = shape.inner;
    const T* px = values<T>(x);
    T* py = values<T>(y);
    if (inner == 1) {
      stream.pool().parallel_ranges(outer, rows_per_task(count), [=](Index begin, Index end) {
        for (Index o = begin; o < end; ++o) py[o] = narrowed<T>(row_max(px + o * count, count));
      });
      return;
    }
    const Index strips = (inner + strip - 1) / strip;
    stream.pool().parallel_for(outer * strips, [=](Index task) {
      const Index o = task / strips, begin = task % strips * strip;
      for_lanes(
          inner - begin < strip ? inner - begin : strip, [&](Index i,
                                                             Index width) __attribute__((always_inline)) {
            const T* from = px + o * count * inner + begin + i;
            Floats top = load(from, width);
            for (Index k = 1; k < count; ++k) top = larger_or_nan(top, load(from + k * inner, width));
            store(py + o * inner + begin + i, top, width);
          });
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
