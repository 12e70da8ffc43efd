// A model that a user of the library might write: several values cross each boundary, among them an int
// tensor that only passes through, a value that skips stages, one that nobody uses, and views; the loss is a
// regression.
#pragma once

#include "parallel/runtime/support.h"

namespace penstock::testing {

/// Sum of (y - t)^2 over all elements, one fp64.
Variable squared_error_sum(const Variable& y, const Variable& t);
/// Transposed view of a matrix.
Variable transposed(const Variable& x);
/// A vector (C) as a view (rows, C) with stride 0.
Variable repeated(const Variable& x, Index rows);

/// What a toy block runs; set by a test to fail or to watch, empty otherwise.
using ForwardHook = std::function<void(int block, const BlockContext&)>;

/// Five blocks without an embedding in front (all of them are layers), on inputs x (B, 5) fp32 and kinds (B)
/// int32; targets (B, 5).
Model make_toy(ForwardHook hook = {});

/// Rows that are a function of (step, sequence): x, kinds below 4, targets. `change` may alter a batch's
/// inputs.
class ToySource final : public BatchSource {
 public:
  static constexpr Index width = 5;
  using Change = std::function<void(Index step, SequenceSpan, std::vector<float>& x)>;

  explicit ToySource(Index batch, Change change = {}) : batch_(batch), change_(std::move(change)) {}
  Index batch(Index) override { return batch_; }
  Index tokens(Index) override { return batch_; }
  Index valid_targets(Index) override { return batch_ * width; }
  MicroBatch load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                  bool targets) override;

 private:
  Index batch_;
  Change change_;
};

/// A training of the toy in micro-batches of two, the last of one.
Training toy_training(const Model& model, const Plan& plan);

}  // namespace penstock::testing
