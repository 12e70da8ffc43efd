// Elementwise kernels, see kernels/elementwise.h.
#include "kernels/elementwise.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

void add(Stream& stream, Index n, In a, In b, Out y) {
  for_storage(a.dtype, [&]<class T>() {
    const T* pa = values<T>(a);
    const T* pb = values<T>(b);
    T* py = values<T>(y);
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            store(py + begin + i, load(pa + begin + i, count) + load(pb + begin + i, count), count);
          });
    });
  });
}

void add_into(Stream& stream, Index n, In x, Out y) {
  const auto add_to = [&]<class T, class Sum>(const T* px, Sum* py) {
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            store(py + begin + i, load(py + begin + i, count) + load(px + begin + i, count), count);
          });
    });
  };
  for_storage(x.dtype, [&]<class T>() {
    if (y.dtype == DType::f32)
      add_to(values<T>(x), values<float>(y));
    else
      add_to(values<T>(x), values<T>(y));
  });
}

void scale(Stream& stream, Index n, In scale, In x, Out y) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const float factor = *values<float>(scale);
    T* py = values<T>(y);
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            store(py + begin + i, splat(factor) * load(px + begin + i, count), count);
          });
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
