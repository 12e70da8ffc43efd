// Cross-entropy loss as a sum.
#pragma once

#include "autograd/op.h"
#include "kernels/cross_entropy.h"

namespace penstock::ops {

/// Sum over the rows of logits (..., V) whose target is not `ignored` of the cross-entropy with
/// (1 - label_smoothing) onehot(target) + label_smoothing / V; one fp64. targets (...) int32 or int64; 0 <=
/// label_smoothing <= 1, else ValueError. Divide by the number of valid rows of the whole global batch, not
/// of this call: its gradient is seeded with one fp32, 1 / that number. The gradient of the logits is written
/// over them when nobody else holds them.
Variable cross_entropy_sum(const Variable& logits, const Variable& targets, float label_smoothing = 0.0f,
                           std::int32_t ignored = kernels::ignored_target);

}  // namespace penstock::ops
