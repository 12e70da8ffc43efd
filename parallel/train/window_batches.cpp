// WindowBatches.
#include "parallel/train/window_batches.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "parallel/train/token_batches.h"

namespace penstock {

WindowBatches::WindowBatches(TokenRow row, Index length, Index stride, Index per_batch,
                             std::optional<std::int32_t> ignore_target)
    : row_(std::move(row)),
      length_(length),
      stride_(stride),
      per_batch_(per_batch),
      ignore_target_(ignore_target) {
  require<ValueError>(row_.size() >= 2,
                      "{} tokens: at least two are needed, one to start from and one to score", row_.size());
  require<ValueError>(stride >= 1 && stride <= length, "--stride {}: 1 to the window's {}", stride, length);
  require<ValueError>(per_batch >= 1, "{} windows a batch: at least 1 wanted", per_batch);
  // The last window is the first one that reaches the last token.
  const Index inputs = row_.size() - 1;
  windows_ = inputs <= length ? 1 : div_up(inputs - length, stride) + 1;
  last_length_ = inputs - (windows_ - 1) * stride;
}

Index WindowBatches::batch(Index step) {
  return step > full_batches() ? 1 : std::min(per_batch_, full_windows() - first_window(step));
}

/// Targets of a window; those that an earlier window has scored, or that are to be ignored, are marked.
std::vector<std::int32_t> WindowBatches::targets_of(Index window, Index length) const {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(length));
  row_.copy(window * stride_ + 1, length, targets.data());
  const Index scored = window == 0 ? 0 : length_ - stride_;
  for (Index t = 0; t < length; ++t) {
    std::int32_t& target = targets[static_cast<std::size_t>(t)];
    if (t < scored || target == ignore_target_) target = kernels::ignored_target;
  }
  return targets;
}

Index WindowBatches::valid_targets(Index step) {
  Index valid = 0;
  for (Index w = 0; w < batch(step); ++w)
    for (const std::int32_t target : targets_of(first_window(step) + w, length_of(step)))
      valid += target != kernels::ignored_target;
  return valid;
}

MicroBatch WindowBatches::load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                               bool targets) {
  const Index length = length_of(step);
  MicroBatch result = micro_batch_of(context, sequences, length);
  std::vector<std::int32_t> in, out;
  for (Index s = sequences.first; s < sequences.last; ++s) {
    const Index window = first_window(step) + s;
    in.resize(in.size() + static_cast<std::size_t>(length));
    row_.copy(window * stride_, length, in.data() + in.size() - length);
    const std::vector<std::int32_t> marked = targets_of(window, length);
    out.insert(out.end(), marked.begin(), marked.end());
  }
  const Shape shape{sequences.size(), length};
  if (inputs) result.inputs = {Tensor::from(context, shape, in)};
  if (targets) result.targets = {Tensor::from(context, shape, out)};
  return result;
}

}  // namespace penstock
