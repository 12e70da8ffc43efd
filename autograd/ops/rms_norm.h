// RMS normalisation over the last dimension, or over each head of it.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// x / sqrt(mean of x^2 + eps) * gain for x (..., C), gain (C). Throws ShapeError where sizes do not fit.
Variable rms_norm(const Variable& x, const Variable& gain, float eps = 1e-5f);

/// The same for each vector of D elements of x (..., heads D), with one gain (D) for all: the q and k norms
/// of an attention, on projections as they come. Throws ShapeError where C is no multiple of D.
Variable head_rms_norm(const Variable& x, const Variable& gain, float eps = 1e-5f);

}  // namespace penstock::ops
