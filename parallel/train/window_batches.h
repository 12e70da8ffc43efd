// Windows of a token row with a stride, for perplexity: every token but the first is scored once, in the
// first window that holds it as a target.
#pragma once

#include <optional>

#include "data/token_row.h"
#include "parallel/pipeline/runtime/batch_source.h"

namespace penstock {

/// Windows of `length` inputs start every `stride` tokens (1 .. length); the last may be shorter. Step b is a
/// batch of up to `per_batch` windows of one length. Throws ValueError for fewer than two tokens, a stride
/// outside its range, or per_batch below 1.
class WindowBatches final : public BatchSource {
 public:
  WindowBatches(TokenRow row, Index length, Index stride, Index per_batch,
                std::optional<std::int32_t> ignore_target);

  Index batches() const { return full_batches() + (last_length_ != length_ ? 1 : 0); }
  /// Inputs of the first window.
  Index first_length() const { return windows_ == 1 ? last_length_ : length_; }

  Index batch(Index step) override;
  Index tokens(Index step) override { return batch(step) * length_of(step); }
  Index valid_targets(Index step) override;
  MicroBatch load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                  bool targets) override;

 private:
  Index full_windows() const { return last_length_ == length_ ? windows_ : windows_ - 1; }
  Index full_batches() const { return div_up(full_windows(), per_batch_); }
  Index length_of(Index step) const { return step > full_batches() ? last_length_ : length_; }
  Index first_window(Index step) const {
    return step > full_batches() ? windows_ - 1 : (step - 1) * per_batch_;
  }
  std::vector<std::int32_t> targets_of(Index window, Index length) const;

  TokenRow row_;
  Index length_, stride_, per_batch_;
  std::optional<std::int32_t> ignore_target_;
  Index windows_ = 0, last_length_ = 0;
};

}  // namespace penstock
