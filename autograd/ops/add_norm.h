// Residual addition and the norm behind it, in one pass over memory.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

struct SumAndNorm {
  Variable sum;     ///< x + branch: the stream that goes on
  Variable normal;  ///< the norm of it: what the next branch reads
};

/// {x + branch, layer_norm(x + branch)} for x and branch (..., C), gain and bias (C); the bias may be absent.
/// Forward values are those of `composed` bit for bit; in the gradient of x the sum of the two paths is
/// rounded once less. Throws ShapeError where sizes do not fit.
SumAndNorm add_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                          const Variable& bias, float eps = 1e-5f);
/// {x + branch, rms_norm(x + branch)}
SumAndNorm add_rms_norm(const Variable& x, const Variable& branch, const Variable& gain, float eps = 1e-5f);

/// The same of two ops each: what the fused ones are compared with.
namespace composed {
SumAndNorm add_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                          const Variable& bias, float eps = 1e-5f);
SumAndNorm add_rms_norm(const Variable& x, const Variable& branch, const Variable& gain, float eps = 1e-5f);
}  // namespace composed

}  // namespace penstock::ops
