// The matrix product as ops use it: with its workspace, and counted.
#pragma once

#include "core/tensor.h"
#include "kernels/gemm.h"

namespace penstock::ops {

/// c = op(a) op(b) [+ bias] [+ c] as kernels::gemm says; `bias` may be undefined.
void product(const kernels::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& bias,
             const Tensor& c);

/// The same for each pair of matrices of a batch.
void product(const kernels::GemmShape& shape, const kernels::GemmBatch& batch, const Tensor& a,
             const Tensor& b, const Tensor& c);

}  // namespace penstock::ops
