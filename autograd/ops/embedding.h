// Rows of a table.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// table (V, C) at ids (...) int32: (..., C). Throws ValueError for an id outside 0..V-1.
Variable embedding(const Variable& ids, const Variable& table);

}  // namespace penstock::ops
