// Squared error, see kernels/loss.h.
#include "kernels/loss.h"

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {

void squared_error_forward(Stream& stream, Index n, In x, In target, Out workspace, Out result) {
  for_storage(x.dtype, [&]<class T>() {
    const T* px = values<T>(x);
    const T* pt = values<T>(target);
    double* partial = values<double>(workspace);
    stream.pool().parallel_ranges(n, squared_error_block, [=](Index begin, Index end) {
      Doubles low{}, high{};
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            const DoublePair a = load_double(px + begin + i, count), b = load_double(pt + begin + i, count);
            const Doubles dl = a.low - b.low, dh = a.high - b.high;
            low += dl * dl;
            high += dh * dh;
          });
      partial[begin / squared_error_block] = sum(low + high);
    });
    double all = 0;
    for (Index block = 0; block * squared_error_block < n; ++block) all += partial[block];
    *values<double>(result) = all;
  });
}

void squared_error_backward(Stream& stream, Index n, float factor, In seed, In x, In target, Out dx) {
  for_storage(x.dtype, [&]<class T>() {
    const float slope = factor * *values<float>(seed);
    const T* px = values<T>(x);
    const T* pt = values<T>(target);
    T* pdx = values<T>(dx);
    stream.pool().parallel_ranges(n, piece, [=](Index begin, Index end) {
      for_lanes(
          end - begin, [&](Index i, Index count) __attribute__((always_inline)) {
            store(pdx + begin + i, splat(slope) * (load(px + begin + i, count) - load(pt + begin + i, count)),
                  count);
          });
    });
  });
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
