// BatchSource: where the sequences of a step come from. A pure function of (step, sequence), so that every
// stage can read its part for itself.
#pragma once

#include <algorithm>
#include <vector>

#include "core/tensor.h"

namespace penstock {

/// Sequences first .. last - 1 of a global batch.
struct SequenceSpan {
  Index first = 0, last = 0;
  Index size() const { return last - first; }
};

/// What the blocks of a stage get besides the values of the stage before.
struct MicroBatch {
  Tensors inputs;       ///< of the first block
  Tensors targets;      ///< of the loss
  Tensor sequence_ids;  ///< (B) int64
  Tensor positions;     ///< (B, T) int32
  Tensor segment_ids;   ///< (B, T) int32, or undefined
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Sequences of the global batch of a step.
  virtual Index batch(Index step) = 0;
  /// Tokens of that batch, for rates; for data without tokens its samples.
  virtual Index tokens(Index step) { return batch(step); }
  /// Targets of that batch that count: the loss is divided by it.
  virtual Index valid_targets(Index step) = 0;
  /// The sequences, in memory of `context` (on the meta device: shapes alone). Inputs and targets only where
  /// asked for.
  virtual MicroBatch load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                          bool targets) = 0;
};

/// The sequence numbers (B) int64 and positions (B, T) int32 of a micro-batch, to which a source adds its
/// inputs and targets. `length` is T: 1 for data without an order within a sample.
MicroBatch micro_batch_of(RankContext& context, SequenceSpan sequences, Index length = 1);

/// Micro-batch i of `count` that cut a batch into pieces of `size` sequences, the last one perhaps smaller.
inline SequenceSpan micro_batch_span(Index batch, Index size, Index i) {
  return {std::min(batch, i * size), std::min(batch, (i + 1) * size)};
}

}  // namespace penstock
