// Products of matrices and of batches of them.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// Which operands are taken with their last two dimensions exchanged, without a copy.
struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

/// a (..., M, K) times b (..., K, N): (..., M, N), in fp32. The dimensions before the last two broadcast as
/// in NumPy. With transpose_a, a is (..., K, M); with transpose_b, b is (..., N, K). The bits depend neither
/// on threads nor on how the operands lie in memory. Throws ShapeError where sizes do not fit or an operand
/// has fewer than two dimensions.
Variable matmul(const Variable& a, const Variable& b, const MatmulOptions& options = {});

}  // namespace penstock::ops
