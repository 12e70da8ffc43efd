// Blocks of a matrix in another element type, see kernels/panel.h.
#include "kernels/panel.h"

#include "kernels/cpu/isa/lanes.h"

namespace penstock::kernels::cpu::PENSTOCK_ISA {
namespace {

template <class From, class To>
PENSTOCK_INLINE void convert(Index rows, Index cols, const From* from, Index from_stride, To* to,
                             Index to_stride) {
  for (Index row = 0; row < rows; ++row)
    for_lanes(
        cols, [&](Index i, Index count) __attribute__((always_inline)) {
          store(to + row * to_stride + i, load(from + row * from_stride + i, count), count);
        });
}

}  // namespace

void widen_panel(Stream&, Index rows, Index cols, const bf16* from, Index stride, float* to) {
  convert(rows, cols, from, stride, to, cols);
}

void round_panel(Stream&, Index rows, Index cols, const float* from, bf16* to, Index stride) {
  convert(rows, cols, from, cols, to, stride);
}

}  // namespace penstock::kernels::cpu::PENSTOCK_ISA
