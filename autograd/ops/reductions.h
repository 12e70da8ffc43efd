// Sums, means and maxima over axes.
#pragma once

#include <vector>

#include "autograd/op.h"

namespace penstock::ops {

/// Each reduces fp32 over the dimensions in `axes` (negative ones count from the back; none: all of them),
/// which disappear, or stay with size 1 where `keepdims` is set. Sums are accumulated in double, neighbouring
/// axes in one go. Throws ShapeError for an axis that is not there or named twice, and where a mean or a
/// maximum would be one of nothing.
Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keepdims = false);
Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keepdims = false);
/// NaN where one of the elements is NaN. Elements that tie for the largest share the gradient equally.
Variable max(const Variable& x, const std::vector<int>& axes = {}, bool keepdims = false);

}  // namespace penstock::ops
