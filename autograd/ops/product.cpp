// Products: workspace and count.
#include "autograd/ops/product.h"

namespace penstock::ops {
namespace {

Tensor workspace_for(const kernels::GemmShape& shape, const Tensor& a, const Tensor& c) {
  const Index floats = kernels::gemm_workspace(shape, a.dtype(), c.dtype(), a.context().pool().threads());
  return Tensor::empty(a.context(), Shape{floats}, DType::f32, MemoryKind::workspace);
}

double flops(const kernels::GemmShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

}  // namespace

void product(const kernels::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& bias,
             const Tensor& c) {
  Stream& stream = a.context().stream();
  kernels::gemm(stream, shape, a, b, bias.defined() ? kernels::In(bias) : kernels::In(),
                workspace_for(shape, a, c), c);
  stream.count_flops(flops(shape));
}

void product(const kernels::GemmShape& shape, const kernels::GemmBatch& batch, const Tensor& a,
             const Tensor& b, const Tensor& c) {
  Stream& stream = a.context().stream();
  kernels::gemm_batched(stream, shape, batch, a, b, workspace_for(shape, a, c), c);
  double matrices = 1;
  for (int d = 0; d < batch.rank; ++d) matrices *= static_cast<double>(batch.sizes[d]);
  stream.count_flops(matrices * flops(shape));
}

}  // namespace penstock::ops
