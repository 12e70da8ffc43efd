// Tensors in another element type.
#pragma once

#include "core/tensor.h"

namespace penstock {

/// x as `dtype`, contiguous unless it is x itself; rounds to the nearest, and throws ValueError where an
/// integer type cannot hold a value.
Tensor converted(const Tensor& x, DType dtype);

}  // namespace penstock
