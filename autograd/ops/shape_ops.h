// Ops that move elements or rename them: views, joins, look-ups. Values of any dtype pass; gradients are
// fp32.
//
// The result of reshape, transpose, permute, slice, expand and split is a view that shares its input's
// memory. Dimensions given as negative numbers count from the back. Each throws ShapeError, with its name,
// where sizes do not fit.
#pragma once

#include <vector>

#include "autograd/op.h"

namespace penstock::ops {

/// The elements in row-major order under another shape; one size may be -1: what is left. Copies where x is a
/// strided view.
Variable reshape(const Variable& x, const std::vector<Index>& sizes);

/// Dimensions a and b change places.
Variable transpose(const Variable& x, int a, int b);

/// Dimension d of the result is dimension order[d] of x.
Variable permute(const Variable& x, const std::vector<int>& order);

/// Elements begin, begin + step, ... below `end` of a dimension.
Variable slice(const Variable& x, int dimension, Index begin, Index end, Index step = 1);

/// Dimensions of size 1 and new leading ones repeat, as in broadcasting. The gradient is the sum over the
/// repetitions.
Variable expand(const Variable& x, const Shape& shape);

/// One after the other along a dimension; 1 to 32 of them, of one dtype, equal in the other dimensions.
Variable concat(const Variables& parts, int dimension);

/// The reverse: parts of these sizes, which add up to the dimension's.
Variables split(const Variable& x, const std::vector<Index>& sizes, int dimension);

/// y[i][j][k] = x[i][index[i][j][k]][k] for dimension 1, and so on. index (int32 or int64) has x's sizes but
/// in `dimension`. What goes to one element of the gradient is added in ascending order. Throws ValueError
/// for an index out of range.
Variable gather(const Variable& x, int dimension, const Variable& index);

/// The entries of a dimension that a list (n) names, int32 or int64, with the same rules as `gather`.
Variable index_select(const Variable& x, int dimension, const Variable& index);

}  // namespace penstock::ops
