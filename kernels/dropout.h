// Dropout: the mask is drawn again from its counters in the backward, never stored.
#pragma once

#include "core/step_state.h"
#include "kernels/kernel.h"

namespace penstock::kernels {

/// y = x * keep / (1 - probability) for x (sequences, elements), elements being those of one sequence (T *
/// C). Whether element e of a sequence is kept is a pure function of (key, state->step, sequence_ids[row],
/// e): Philox element e, kept when its uniform is at least `probability`. So the mask does not depend on how
/// the batch is cut. sequence_ids (sequences) int64. The gradient is the same kernel applied to dy. state
/// lies in device memory.
PENSTOCK_KERNEL(dropout, Index sequences, Index elements, float probability, std::uint64_t key,
                const StepState* state, In sequence_ids, In x, Out y);

}  // namespace penstock::kernels
