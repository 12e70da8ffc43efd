// Elementwise kernels with broadcasting: operands of any strides (0 where an operand repeats), contiguous
// results.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace penstock::kernels {

/// Sizes of the result and the strides, in elements, with which up to three operands are walked along it.
/// Dimensions that all operands walk as one are joined, so that a dense loop has one dimension; there is at
/// least one.
struct StridedShape {
  static constexpr int max_operands = 3;

  int rank = 0;
  Index numel = 1;
  Index sizes[Shape::max_rank] = {};
  Index strides[max_operands][Shape::max_rank] = {};
};

/// The loop over `shape` for operands that were expanded to it. Throws ShapeError for an operand of another
/// shape.
StridedShape strided(const Shape& shape, std::span<const Tensor> operands);

/// The data of an operand whose strides travel in a StridedShape.
inline In any_layout(const Tensor& t) { return {t.data(), t.dtype()}; }

enum class UnaryOp : int {
  affine,              ///< alpha x + beta
  exponential,         ///< e^x; results below 2^-126 are 0
  logarithm,           ///< ln x
  hyperbolic_tangent,  ///< tanh x
  square_root,         ///< sqrt x
  power,               ///< x^alpha
  relu,                ///< max(x, 0); NaN stays
  sigmoid,             ///< 1 / (1 + e^-x)
  silu,                ///< x / (1 + e^-x)
};

/// Constants of the ops that have them.
struct UnaryConstants {
  float alpha = 1, beta = 0;
};

/// y = f(x)
PENSTOCK_KERNEL(unary, UnaryOp op, UnaryConstants constants, const StridedShape& shape, In x, Out y);

/// dx = dy f'(x). `saved` is y for exponential and square_root, x for the others. Where f has a kink or none:
/// relu' (0) = 0, power' = 0 for alpha = 0. Slopes are written so that no exponential overflows and nothing
/// cancels at the ends. Operands: saved, dy.
PENSTOCK_KERNEL(unary_backward, UnaryOp op, UnaryConstants constants, const StridedShape& shape, In saved,
                In dy, Out dx);

enum class BinaryOp : int { sum, difference, product, quotient };

/// y = a op b. Operands: a, b.
PENSTOCK_KERNEL(binary, BinaryOp op, const StridedShape& shape, In a, In b, Out y);

/// db = -dy a / b^2, the gradient of a / b by b; b^2 is not formed. Operands: dy, a, b.
PENSTOCK_KERNEL(divide_backward, const StridedShape& shape, In dy, In a, In b, Out db);

enum class Comparison : int { equal, not_equal, less, less_equal, greater, greater_equal };

/// y (uint8) = 1 where a op b, 0 elsewhere, as IEEE 754 compares (NaN is equal to nothing). a and b are both
/// fp32, int32, int64 or uint8. Operands: a, b.
PENSTOCK_KERNEL(compare, Comparison op, const StridedShape& shape, In a, In b, Out y);

/// y = a where condition (uint8) is not 0, b elsewhere; an absent a or b counts as 0.
/// Operands: condition, a, b.
PENSTOCK_KERNEL(select, const StridedShape& shape, In condition, In a, In b, Out y);

}  // namespace penstock::kernels
