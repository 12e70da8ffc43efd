// Table look-up and its gradient.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// y (rows, cols) = table (vocabulary, cols) at ids (rows) int32. Throws ValueError for an id outside
/// 0..vocabulary-1.
PENSTOCK_KERNEL(embedding_forward, Index rows, Index cols, Index vocabulary, In ids, In table, Out y);

/// dtable (vocabulary, cols) [+]= dy (rows, cols) at ids; for one id the rows ascend. Without accumulate the
/// untouched rows of dtable become 0.
PENSTOCK_KERNEL(embedding_backward, Index rows, Index cols, Index vocabulary, bool accumulate, In ids, In dy,
                Out dtable);

}  // namespace penstock::kernels
