// Batches of tokens: a Sampler as the source of a pipeline, for training and for evaluation.
#pragma once

#include "data/sampler.h"
#include "parallel/pipeline/runtime/batch_source.h"

namespace penstock {

/// Step s takes the sampler's batch s. Inputs and targets are (B, T) int32.
class TokenBatches final : public BatchSource {
 public:
  explicit TokenBatches(Sampler sampler) : sampler_(std::move(sampler)) {}

  Index batch(Index) override { return sampler_.options().batch; }
  Index tokens(Index) override { return sampler_.options().batch * sampler_.options().sequence_length; }
  Index valid_targets(Index step) override { return sampler_.valid_targets(step); }
  MicroBatch load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                  bool targets) override;

  Sampler& sampler() { return sampler_; }

 private:
  Sampler sampler_;
};

/// Every window of a sequential sampler once, the last batch perhaps smaller: step b is batch b.
class EvaluationBatches final : public BatchSource {
 public:
  explicit EvaluationBatches(Sampler sampler) : tokens_(std::move(sampler)) {}

  Index batches() { return div_up(tokens_.sampler().windows(), tokens_.batch(1)); }
  Index batch(Index step) override;
  Index tokens(Index step) override { return batch(step) * tokens_.sampler().options().sequence_length; }
  Index valid_targets(Index step) override;
  MicroBatch load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                  bool targets) override {
    return tokens_.load(context, step, sequences, inputs, targets);
  }

 private:
  TokenBatches tokens_;
};

}  // namespace penstock
