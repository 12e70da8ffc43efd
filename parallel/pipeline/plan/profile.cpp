// profile_blocks: each block on a tape of its own, on meta.
#include "parallel/pipeline/plan/profile.h"

#include <numeric>

#include "nn/weight_store.h"

namespace penstock {

std::vector<BlockProfile> profile_blocks(const Model& model, BatchSource& source, Index step,
                                         SequenceSpan sequences, const ProfileOptions& options) {
  RankContext context({.device = {DeviceKind::meta, 0}});
  std::vector<int> all(static_cast<std::size_t>(model.size()));
  std::iota(all.begin(), all.end(), 0);
  WeightStore weights(context, model, all, {.gradients = true, .compute = options.compute});
  const bool train = options.mode == Mode::train;
  const MicroBatch batch = source.load(context, step, sequences, true, train);

  std::vector<BlockProfile> profiles;
  Tensors values = batch.inputs;
  Stream& stream = context.stream();
  for (int b = 0; b < model.size(); ++b) {
    Tape tape(context, &weights);
    BlockContext block_context{.rank = &context,
                               .weights = &weights,
                               .tape = train ? &tape : nullptr,
                               .mode = options.mode,
                               .block = b,
                               .recompute = options.recompute.empty()
                                                ? Recompute::nothing
                                                : options.recompute[static_cast<std::size_t>(b)],
                               .sequence_ids = batch.sequence_ids,
                               .positions = batch.positions,
                               .segment_ids = batch.segment_ids};
    BlockProfile profile;
    Variables inputs;
    for (const Tensor& v : values) {
      const bool gradient = b > 0 && TensorSpec{v.shape(), v.dtype()}.has_gradient();
      inputs.push_back(train ? tape.input(v, gradient) : Variable(v));
    }
    double before = stream.flops();
    const auto spent = [&] { return stream.flops() - std::exchange(before, stream.flops()); };
    Variables outputs;
    try {
      outputs = run_block(model.block(b), inputs, block_context);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        require<ValueError>(outputs[i].defined(), "gave no value as output {}", i);
    } catch (Error& e) {
      e.add_context(fmt::format("block {}", model.block(b).name()));
      throw;
    }
    values.clear();
    for (const Variable& v : outputs) {
      values.push_back(v.tensor());
      profile.outputs.push_back({v.shape(), v.tensor().dtype()});
    }
    if (train) {
      Tensors gradients = values;
      for (Tensor& g : gradients)
        if (!is_floating_point(g.dtype())) g = {};
      if (b == model.size() - 1 && !batch.targets.empty()) {
        outputs = {model.loss(outputs, batch.targets)};
        gradients = {Tensor::empty(context, outputs[0].shape())};
      }
      profile.forward_flops = spent();
      tape.backward_input(outputs, gradients);
      profile.input_flops = spent();
      tape.backward_weight();
      profile.weight_flops = spent();
    } else {
      profile.forward_flops = spent();
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

}  // namespace penstock
