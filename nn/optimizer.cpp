// AdamW, SGD and the norm table.
#include "nn/optimizer.h"

#include "kernels/reduce.h"

namespace penstock {

void AdamW::step(RankContext& context, WeightStore& weights, const StepState* state) {
  for (const WeightStore::Run& run : weights.runs()) {
    kernels::AdamWSettings settings = settings_;
    if (!run.decays) settings.weight_decay = 0;
    kernels::adamw(context.stream(), run.values.numel(), settings, state, run.gradients, run.values,
                   run.state[0], run.state[1]);
    context.between_ops();
  }
}

std::vector<std::string> Sgd::buffer_names() const {
  if (settings_.momentum != 0) return {"momentum_buffer"};
  return {};
}

void Sgd::step(RankContext& context, WeightStore& weights, const StepState* state) {
  for (const WeightStore::Run& run : weights.runs()) {
    kernels::SgdSettings settings = settings_;
    if (!run.decays) settings.weight_decay = 0;
    kernels::sgd(context.stream(), run.values.numel(), settings, state, run.gradients, run.values,
                 run.state.empty() ? kernels::Out() : kernels::Out(run.state[0]));
    context.between_ops();
  }
}

std::vector<double> gradient_norm_table(RankContext& context, const WeightStore& weights,
                                        const Model& model) {
  std::vector<double> table(model.parameters().size(), 0.0);
  Index largest = 1;
  for (const ParameterRecord& p : model.parameters())
    largest = std::max(largest, kernels::sum_of_squares_workspace(p.shape.numel()));
  const Tensor workspace = Tensor::empty(context, Shape{largest}, DType::f64, MemoryKind::workspace);
  const Tensor result = Tensor::zeros(context, Shape{1}, DType::f64, MemoryKind::workspace);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const ParameterRecord& p = model.parameters()[i];
    if (p.frozen || !weights.holds(p.uses[0].block)) continue;
    kernels::sum_of_squares(context.stream(), p.shape.numel(),
                            weights.gradient_of(p.uses[0].block, p.uses[0].parameter), workspace, result);
    if (!result.is_meta()) table[i] = result.item();
  }
  return table;
}

}  // namespace penstock
