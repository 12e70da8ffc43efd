// Cross-entropy of logits against one target a row.
#pragma once

#include "kernels/kernel.h"

namespace penstock::kernels {

/// Target that usually marks a row as ignored: it counts neither in the sum nor in the count.
inline constexpr std::int32_t ignored_target = -1;

/// For logits (rows, vocabulary) and targets (rows) int32: row_lse (rows) = log sum exp of the row,
/// sum_and_count (2) fp64 = {sum over valid rows of their losses, number of valid rows}, rows ascending in
/// double. The loss of a row is lse - (1 - smoothing) logit[target] - smoothing * mean(logits): the
/// cross-entropy with (1 - smoothing) onehot(target)
/// + smoothing / vocabulary (Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7).
/// Throws ValueError for a target >= vocabulary or below 0 other than `ignored`.
PENSTOCK_KERNEL(cross_entropy_forward, Index rows, Index vocabulary, float smoothing, std::int32_t ignored,
                In logits, In targets, Out row_lse, Out sum_and_count);

/// dlogits = (softmax(logits) - (1 - smoothing) onehot(target) - smoothing / vocabulary) * seed for valid
/// rows, 0 for ignored ones; seed is one fp32 in device memory. dlogits may be logits.
PENSTOCK_KERNEL(cross_entropy_backward, Index rows, Index vocabulary, float smoothing, std::int32_t ignored,
                In seed, In logits, In targets, In row_lse, Out dlogits);

}  // namespace penstock::kernels
