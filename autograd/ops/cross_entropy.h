// Cross-entropy loss as a sum.
#pragma once

#include "autograd/op.h"

namespace penstock::ops {

/// Sum over the rows of logits (..., V) whose target is not kernels::ignored_target of -log softmax(logits)[target]; one fp64.
/// targets (...) int32. Divide by the number of valid rows of the whole global batch, not of this call: its gradient is seeded
/// with one fp32, 1 / that number.
Variable cross_entropy_sum(const Variable& logits, const Variable& targets);

}  // namespace penstock::ops
