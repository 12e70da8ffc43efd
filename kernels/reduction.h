// Sums and maxima over one group of neighbouring dimensions, in an order that depends on the shape alone.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// x (outer, count, inner) is reduced over its middle dimension: y (outer, inner).
struct ReduceShape {
  Index outer = 1, count = 1, inner = 1;
};

/// Doubles of workspace that `reduce_sum` needs.
Index reduce_sum_workspace(const ReduceShape& shape);

/// y = sum over count of x, divided by `divisor`; accumulated in double and rounded once. count = 0 gives 0
/// (NaN where the divisor is 0 too). One long row (inner = 1) is summed by fixed blocks, blocks ascending.
PENSTOCK_KERNEL(reduce_sum, const ReduceShape& shape, double divisor, In x, Out workspace, Out y);

/// y = largest of x over count, at least 1; NaN where one of them is NaN.
PENSTOCK_KERNEL(reduce_max, const ReduceShape& shape, In x, Out y);

}  // namespace penstock::kernels
