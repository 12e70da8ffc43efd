// Layer normalisation over the last dimension.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// (x - mean) / sqrt(variance + eps) * gain + bias for x (..., C), gain and bias (C); the bias may be absent.
/// Throws ShapeError where sizes do not fit.
Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias, float eps = 1e-5f);

}  // namespace penstock::ops
