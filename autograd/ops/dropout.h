// Dropout with masks that depend on counters alone.
#pragma once

#include "autograd/op.h"
#include "core/step_state.h"

namespace penstock::ops {

/// Zeroes each element of x (B, ...) with `probability` and scales the others by 1 / (1 - probability). The
/// mask is a function of (key, state->step, sequence_ids[b], element within the sequence): see
/// kernels/dropout.h. `key` comes from RandomKey with the layer's full name. sequence_ids (B) int64: numbers
/// of the sequences within the step's global batch. `state` outlives the tape.
Variable dropout(const Variable& x, float probability, std::uint64_t key, const StepState* state,
                 const Variable& sequence_ids);

}  // namespace penstock::ops
