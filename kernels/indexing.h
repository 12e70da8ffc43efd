// Picking elements by index, and the sum of their gradients.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y (outer, count, inner) = x (outer, rows, inner) at [o][index][i]. The index of (o, k, i) stands at
/// o index_outer + k index_count + i index_inner: 0, 1, 0 for one list for all.
struct IndexShape {
  Index outer = 1, rows = 0, count = 0, inner = 1;
  Index index_outer = 0, index_count = 1, index_inner = 0;
};

/// y = x at index (int32 or int64); x and y have any one dtype. Throws ValueError for an index outside
/// 0..rows-1.
PENSTOCK_KERNEL(gather, const IndexShape& shape, In index, In x, Out y);

/// dx (outer, rows, inner) [+]= dy (outer, count, inner) at index; what goes to one element is added in
/// ascending order of the count. Without accumulate the untouched elements become 0.
PENSTOCK_KERNEL(scatter_add, const IndexShape& shape, bool accumulate, In index, In dy, Out dx);

}  // namespace penstock::kernels
