// Losses of a regression, as sums.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// Sum over all elements of (x - target)^2; one fp64. x and target are fp32 of one shape. For the mean
/// squared error divide by the number of elements of the whole global batch, not of this call: its gradient
/// is seeded with one fp32, 1 / that number. Throws ShapeError for two shapes.
Variable mse_sum(const Variable& x, const Variable& target);

}  // namespace penstock::ops
