// The gated unit of LLaMA's feed-forward layer.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// silu(gate) * up for gate and up of one shape. Two inputs, not one of double width: the weight files have
/// two projections, whose outputs then need no copy, and a slice of either by tensor parallelism stays a
/// slice. Throws ShapeError where shapes differ.
Variable swiglu(const Variable& gate, const Variable& up);

}  // namespace penstock::ops
