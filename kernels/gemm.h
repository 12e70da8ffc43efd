// Matrix product, through oneDNN on the CPU.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// C (M, N) = op(A) (M, K) op(B) (K, N) [+ bias (N)] [+ C], row-major, op(X) = X or its transpose.
struct GemmShape {
  Index m = 0, n = 0, k = 0;
  bool transpose_a = false;  ///< A is stored (K, M)
  bool transpose_b = false;  ///< B is stored (N, K)
  bool accumulate = false;   ///< adds to what C holds
};

/// Matrices are dense. The result does not depend on the number of threads: M and N are cut into tiles by
/// shape alone, each one single-threaded library call; K is never split. `bias` may be absent and is ignored
/// where accumulate is set. k = 0 gives zeros (plus bias).
PENSTOCK_LIBRARY_KERNEL(gemm, const GemmShape& shape, In a, In b, In bias, Out c);

/// Where the matrices of a batch lie: sizes of the batch dimensions, and for each how far apart, in elements,
/// its matrices of A and B are (0: one for all). Those of C follow one another.
struct GemmBatch {
  int rank = 0;
  Index sizes[Shape::max_rank] = {};
  Index stride_a[Shape::max_rank] = {};
  Index stride_b[Shape::max_rank] = {};
};

/// The product of each pair of matrices of a batch, with the bits that `gemm` gives it alone.
PENSTOCK_LIBRARY_KERNEL(gemm_batched, const GemmShape& shape, const GemmBatch& batch, In a, In b, Out c);

}  // namespace penstock::kernels
