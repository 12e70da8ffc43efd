// Losses of a regression.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// Doubles of workspace that `squared_error_forward` needs for n elements.
Index squared_error_workspace(Index n);

/// sum (one fp64) = sum of (x[i] - target[i])^2, differences and squares in double, by fixed blocks, blocks
/// ascending.
PENSTOCK_KERNEL(squared_error_forward, Index n, In x, In target, Out workspace, Out sum);

/// dx = factor seed (x - target), the seed read from device memory (one fp32); factor 2 for x, -2 for the
/// target.
PENSTOCK_KERNEL(squared_error_backward, Index n, float factor, In seed, In x, In target, Out dx);

}  // namespace penstock::kernels
