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

/// Floats of workspace that a product needs on a rank with this many compute threads; none in fp32.
Index gemm_workspace(const GemmShape& shape, DType operands, DType result, int threads);

/// Matrices are dense. A, B and the bias are fp32 or bf16, C is of their type or fp32; products and sums are
/// fp32. C of bf16 cannot be accumulated into. The result does not depend on the number of threads: M and N
/// are cut into tiles by shape alone, each one made by one thread, and K is never split among threads. `bias`
/// may be absent and is ignored where accumulate is set. k = 0 gives zeros (plus bias).
PENSTOCK_LIBRARY_KERNEL(gemm, const GemmShape& shape, In a, In b, In bias, Out workspace, Out c);

/// Where the matrices of a batch lie: sizes of the batch dimensions, and for each how far apart, in elements,
/// its matrices of A and B are (0: one for all). Those of C follow one another.
struct GemmBatch {
  int rank = 0;
  Index sizes[Shape::max_rank] = {};
  Index stride_a[Shape::max_rank] = {};
  Index stride_b[Shape::max_rank] = {};
};

/// The product of each pair of matrices of a batch, with the bits that `gemm` gives it alone.
PENSTOCK_LIBRARY_KERNEL(gemm_batched, const GemmShape& shape, const GemmBatch& batch, In a, In b,
                        Out workspace, Out c);

}  // namespace penstock::kernels
