// executable_plan and balanced_partition.
#include "parallel/train/layout.h"

#include "parallel/pipeline/plan/profile.h"
#include "parallel/pipeline/runtime/training_step.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock {

Plan executable_plan(const Plan& plan) {
  require_verified(plan);
  require_executable(plan);
  Plan result = add_optimizer(plan.lowered ? plan : lower(plan));
  require_verified(result, {.optimizer = true});
  return result;
}

Partition balanced_partition(const Model& model, BatchSource& source, Index micro_batch_size, Index stages,
                             const RecomputePolicy& recompute) {
  const SequenceSpan sequences = micro_batch_span(source.batch(1), micro_batch_size, 0);
  const auto costs_with = [&](const std::vector<Recompute>& of_blocks) {
    std::vector<double> costs;
    for (const BlockProfile& p : profile_blocks(model, source, 1, sequences, {.recompute = of_blocks}))
      costs.push_back(p.forward_flops + p.input_flops + p.weight_flops);
    return costs;
  };
  const std::vector<double> speeds(static_cast<std::size_t>(stages), 1.0);
  if (recompute.kind != RecomputePolicy::Kind::layers)
    return partition_by_cost(model, costs_with(recompute_of_blocks(model, {{0, model.size()}}, recompute)),
                             speeds);
  // Which layers are run again depends on where the stage begins.
  const std::vector<double> kept = costs_with({});
  const std::vector<double> again = costs_with(
      recompute_of_blocks(model, {{0, model.size()}}, {.kind = RecomputePolicy::Kind::full, .count = 0}));
  return partition_by_cost(
      model,
      [&](BlockRange stage) {
        double cost = 0;
        Index layers = 0;
        for (int b = stage.begin; b < stage.end; ++b) {
          layers += model.block(b).layers();
          cost += (layers <= recompute.count ? again : kept)[static_cast<std::size_t>(b)];
        }
        return cost;
      },
      speeds);
}

}  // namespace penstock
