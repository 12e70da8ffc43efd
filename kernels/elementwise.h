// Elementwise kernels over n contiguous elements.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y = a + b
PENSTOCK_KERNEL(add, Index n, In a, In b, Out y);
/// y += x
PENSTOCK_KERNEL(add_into, Index n, In x, Out y);
/// y = scale * x, the scale read from device memory (one fp32)
PENSTOCK_KERNEL(scale, Index n, In scale, In x, Out y);

}  // namespace penstock::kernels
