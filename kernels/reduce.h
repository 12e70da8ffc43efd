// Reductions in an order that depends on the shape alone.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// dbias (cols) [+]= sum over rows of dy (rows, cols): the gradient of a bias. Rows ascend.
PENSTOCK_KERNEL(column_sum, Index rows, Index cols, bool accumulate, In dy, Out dbias);

/// Doubles of workspace that `sum_of_squares` needs for n elements.
Index sum_of_squares_workspace(Index n);
/// result (one fp64) = sum of x[i]^2, accumulated in double by fixed blocks, blocks ascending. Not finite
/// where x is not.
PENSTOCK_KERNEL(sum_of_squares, Index n, In x, Out workspace, Out result);

}  // namespace penstock::kernels
