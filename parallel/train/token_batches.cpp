// TokenBatches: from the sampler's windows to tensors.
#include "parallel/train/token_batches.h"

namespace penstock {

MicroBatch TokenBatches::load(RankContext& context, Index step, SequenceSpan sequences, bool inputs,
                              bool targets) {
  const Index length = sampler_.options().sequence_length;
  MicroBatch batch = micro_batch_of(context, sequences, length);
  const Shape shape{sequences.size(), length};
  std::vector<std::int32_t> in(static_cast<std::size_t>(shape.numel())), out(in.size());
  if ((inputs || targets) && context.device().kind != DeviceKind::meta)
    sampler_.fill(step, {sequences.first, sequences.last}, in.data(), out.data());
  if (inputs) batch.inputs = {Tensor::from(context, shape, in)};
  if (targets) batch.targets = {Tensor::from(context, shape, out)};
  return batch;
}

Index EvaluationBatches::batch(Index step) {
  const Index size = tokens_.batch(step), windows = tokens_.sampler().windows();
  require<ValueError>(step >= 1 && (step - 1) * size < windows, "evaluation batch {} of {}", step, batches());
  return std::min(size, windows - (step - 1) * size);
}

Index EvaluationBatches::valid_targets(Index step) {
  const Index size = batch(step), length = tokens_.sampler().options().sequence_length;
  if (!tokens_.sampler().options().ignore_target) return size * length;
  std::vector<std::int32_t> in(static_cast<std::size_t>(size * length)), out(in.size());
  tokens_.sampler().fill(step, {0, size}, in.data(), out.data());
  return static_cast<Index>(
      std::count_if(out.begin(), out.end(), [](std::int32_t t) { return t != Sampler::ignored; }));
}

}  // namespace penstock
