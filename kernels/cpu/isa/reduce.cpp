// Reductions, see kernels/reduce.h.
#include "kernels/reduce.h"

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

void column_sum(Stream& stream, Index rows, Index cols, bool accumulate, In dy, Out dbias) {
  for_storage(dy.dtype, [&]<class T>() {
    constexpr Index strip = 64;
    const T* pdy = values<T>(dy);
    float* pdbias = values<float>(dbias);
    stream.pool().parallel_ranges(cols, strip, [=](Index begin, Index end) {
      double total[strip] = {};
      const Index width = end - begin;
      for (Index row = 0; row < rows; ++row) {
        const T* grad = pdy + row * cols + begin;
        if (width == strip)
          for (Index i = 0; i < strip; ++i) total[i] += static_cast<double>(widened(grad[i]));
        else
          for (Index i = 0; i < width; ++i) total[i] += static_cast<double>(widened(grad[i]));
      }
      for (Index i = 0; i < width; ++i) {
        const auto b = static_cast<float>(total[i]);
        pdbias[begin + i] = accumulate ? pdbias[begin + i] + b : b;
      }
    });
  });
}

void sum_of_squares(Stream& stream, Index n, In x, Out workspace, Out result) {
  const float* px = values<float>(x);
  double* partial = values<double>(workspace);
  double* total = values<double>(result);
  stream.pool().parallel_ranges(n, sum_of_squares_block, [=](Index begin, Index end) {
    Doubles low{}, high{};
    for_lanes(
        end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
          const DoublePair v = load_double(px + begin + i, count);
          low += v.low * v.low;
          high += v.high * v.high;
        });
    partial[begin / sum_of_squares_block] = sum(low + high);
  });
  double all = 0;
  for (Index block = 0; block * sum_of_squares_block < n; ++block) all += partial[block];
  *total = all;
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
