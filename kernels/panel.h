// Copies of a block of a matrix in another element type: how products of bf16 are made where the library
// multiplies fp32.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// to (rows, cols), dense, = the block of bf16 at `from`, whose rows are `stride` elements apart. Runs on the
/// calling thread alone.
PENSTOCK_KERNEL(widen_panel, Index rows, Index cols, const bf16* from, Index stride, float* to);
/// The block of bf16 at `to`, whose rows are `stride` apart, = from (rows, cols), dense, rounded.
PENSTOCK_KERNEL(round_panel, Index rows, Index cols, const float* from, bf16* to, Index stride);

}  // namespace penstock::kernels
