// Elementwise kernels, see kernels/elementwise.h.
#include "kernels/elementwise.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

void add(Stream& stream, Index n, In a, In b, Out y) {
  const float* pa = floats(a);
  const float* pb = floats(b);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] = pa[i] + pb[i];
  });
}

void add_into(Stream& stream, Index n, In x, Out y) {
  const float* px = floats(x);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] += px[i];
  });
}

void scale(Stream& stream, Index n, In scale, In x, Out y) {
  const float* px = floats(x);
  const float factor = *floats(scale);
  float* py = floats(y);
  stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) py[i] = factor * px[i];
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
