// Checks, broadcasting and reductions over sets of axes.
#include "autograd/ops/operands.h"

#include <algorithm>
#include <vector>

#include "kernels/reduction.h"

namespace penstock::ops {
namespace {

Index product(const Shape& shape, int begin, int end) {
  Index n = 1;
  for (int d = begin; d < end; ++d) n *= shape[d];
  return n;
}

/// Calls reduce(shape, x, y, last) for each group of neighbouring axes, from the back. Dimensions of size 1
/// belong to any group. What lies between two groups is of dtype `between`, the last result of `dtype`.
template <class Reduce>
Tensor for_groups(const Tensor& x, Axes axes, DType between, DType dtype, Reduce&& reduce) {
  const int rank = x.shape().rank();
  for (int d = 0; d < rank; ++d)
    if (x.shape()[d] == 1) axes.reset(static_cast<std::size_t>(d));
  if (axes.none()) return x;
  Tensor current = x.contiguous();
  const auto in_group = [&](int d) { return axes[static_cast<std::size_t>(d)] || current.shape()[d] == 1; };
  for (int end = rank; axes.any(); --end) {
    if (!axes[static_cast<std::size_t>(end - 1)]) continue;
    int begin = end;
    Shape reduced = current.shape();
    while (begin > 0 && in_group(begin - 1)) {
      --begin;
      reduced = reduced.with(begin, 1);
      axes.reset(static_cast<std::size_t>(begin));
    }
    const Shape& shape = current.shape();
    const Tensor y = Tensor::empty(x.context(), reduced, axes.none() ? dtype : between);
    reduce(
        kernels::ReduceShape{product(shape, 0, begin), product(shape, begin, end), product(shape, end, rank)},
        current, y, axes.none());
    current = y;
    end = begin + 1;
  }
  return current;
}

}  // namespace

void require_floats(std::string_view op, std::span<const Tensor> operands) {
  for (const Tensor& t : operands) {
    require<ValueError>(t.dtype() == DType::f32 || t.dtype() == DType::bf16,
                        "{}: computes with fp32 or bf16, not {}; cast it first", op, name_of(t.dtype()));
    require<ValueError>(t.dtype() == operands[0].dtype(), "{}: {} with {}; cast one of them first", op,
                        name_of(operands[0].dtype()), name_of(t.dtype()));
  }
}

void require_indices(std::string_view op, std::string_view what, const Tensor& indices) {
  require<ValueError>(indices.dtype() == DType::i32 || indices.dtype() == DType::i64,
                      "{}: {} are int32 or int64, not {}", op, what, name_of(indices.dtype()));
}

int axis_of(std::string_view op, const Shape& shape, int axis) {
  const int d = axis < 0 ? axis + shape.rank() : axis;
  require<ShapeError>(d >= 0 && d < shape.rank(), "{}: dimension {} of a tensor of shape {}", op, axis,
                      shape.str());
  return d;
}

Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<Index> sizes(static_cast<std::size_t>(rank));
  for (int d = 1; d <= rank; ++d) {
    const Index p = d <= a.rank() ? a[a.rank() - d] : 1, q = d <= b.rank() ? b[b.rank() - d] : 1;
    require<ShapeError>(p == q || p == 1 || q == 1, "{}: {} and {}", op, a.str(), b.str());
    sizes[static_cast<std::size_t>(rank - d)] = p == 1 ? q : p;
  }
  return Shape(sizes);
}

Tensor sum_axes(const Tensor& x, Axes axes, double divisor, std::optional<DType> dtype) {
  Stream& stream = x.context().stream();
  return for_groups(x, axes, DType::f32, dtype.value_or(x.dtype()),
                    [&](const kernels::ReduceShape& shape, const Tensor& from, const Tensor& to, bool last) {
                      const Tensor workspace =
                          Tensor::empty(x.context(), Shape{kernels::reduce_sum_workspace(shape)}, DType::f64,
                                        MemoryKind::workspace);
                      kernels::reduce_sum(stream, shape, last ? divisor : 1.0, from, workspace, to);
                    });
}

Tensor max_axes(const Tensor& x, Axes axes) {
  Stream& stream = x.context().stream();
  return for_groups(x, axes, x.dtype(), x.dtype(),
                    [&](const kernels::ReduceShape& shape, const Tensor& from, const Tensor& to, bool) {
                      kernels::reduce_max(stream, shape, from, to);
                    });
}

Tensor sum_to(const Tensor& gradient, const Shape& shape, std::optional<DType> dtype) {
  if (gradient.shape() == shape) return gradient;
  const int added = gradient.shape().rank() - shape.rank();
  Axes axes;
  for (int d = 0; d < gradient.shape().rank(); ++d)
    if (d < added || shape[d - added] != gradient.shape()[d]) axes.set(static_cast<std::size_t>(d));
  return sum_axes(gradient, axes, 1, dtype).contiguous().reshape(shape);
}

}  // namespace penstock::ops
