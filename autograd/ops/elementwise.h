// Elementwise ops.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// a + b, of one shape.
Variable add(const Variable& a, const Variable& b);

/// GELU with the tanh approximation (GPT-2's gelu_new).
Variable gelu(const Variable& x);

}  // namespace penstock::ops
