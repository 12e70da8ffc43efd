// What the general ops share: checks of dtypes and axes, broadcasting of shapes, and the sum of a gradient
// back over the dimensions that were broadcast.
#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace penstock::ops {

/// A set of dimensions.
using Axes = std::bitset<Shape::max_rank>;

/// Throws ValueError, naming the op, unless all are fp32 or all are bf16.
void require_floats(std::string_view op, std::span<const Tensor> operands);

/// Throws ValueError, naming the op and `what` it is, unless the tensor is int32 or int64.
void require_indices(std::string_view op, std::string_view what, const Tensor& indices);

/// A dimension of `shape`; negative ones count from the back. Throws ShapeError, naming the op.
int axis_of(std::string_view op, const Shape& shape, int axis);

/// The shape to which both expand: dimensions are matched from the last, and a missing one or one of size 1
/// repeats. Throws ShapeError, naming the op, where two sizes differ and none is 1.
Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b);

/// The sum of x over `axes`, which stay as dimensions of size 1, divided by `divisor`. Neighbouring axes are
/// summed in double in one go; the order depends on the shape alone. The result is of x's dtype, or of
/// `dtype` where it is given. Without anything to add up it is x.
Tensor sum_axes(const Tensor& x, Axes axes, double divisor = 1, std::optional<DType> dtype = {});

/// The largest of x over `axes`, which stay as dimensions of size 1 and must not be empty.
Tensor max_axes(const Tensor& x, Axes axes);

/// The gradient of an operand of this shape that was broadcast to the gradient's: the sum over where it
/// repeated, in the gradient's dtype or the given one.
Tensor sum_to(const Tensor& gradient, const Shape& shape, std::optional<DType> dtype = {});

}  // namespace penstock::ops
