// Cross-entropy of logits against one target a row.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// Target that marks a row as ignored: it counts neither in the sum nor in the count.
inline constexpr std::int32_t ignored_target = -1;

/// For logits (rows, vocabulary) and targets (rows) int32: row_lse (rows) = log sum exp of the row,
/// sum_and_count (2) fp64 = {sum over valid rows of lse - logit[target], number of valid rows}, rows ascending in double.
/// Throws ValueError for a target >= vocabulary or below 0 other than ignored_target.
PENSTOCK_KERNEL(cross_entropy_forward, Index rows, Index vocabulary, In logits, In targets, Out row_lse, Out sum_and_count);

/// dlogits = (softmax(logits) - onehot(target)) * seed for valid rows, 0 for ignored ones; seed is one fp32 in device memory.
/// dlogits may be logits.
PENSTOCK_KERNEL(cross_entropy_backward, Index rows, Index vocabulary, In seed, In logits, In targets, In row_lse, Out dlogits);

}  // namespace penstock::kernels
