// Conversion between element types.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y = x as y's dtype, over n contiguous elements, among fp32, bf16, fp16, int32, int64, uint8, and from fp64
/// to fp32. To a floating
/// type it rounds to the nearest, ties to even. To an integer type it must be exact: throws ValueError for a
/// fraction, NaN or a number out of range, with its place.
PENSTOCK_KERNEL(cast, Index n, In x, Out y);

}  // namespace penstock::kernels
