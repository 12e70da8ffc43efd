// Gaussian error linear unit.
#pragma once

#include "autograd/op.h"
#include "kernels/gelu.h"

namespace penstock::ops {

using kernels::GeluForm;

/// GELU of x (..., C), or of x + bias with a bias (C) where one is given: the linear layer before it then
/// needs none, and x + bias is never stored. Throws ShapeError where the bias does not fit.
Variable gelu(const Variable& x, GeluForm form = GeluForm::tanh, const Variable& bias = {});

}  // namespace penstock::ops
