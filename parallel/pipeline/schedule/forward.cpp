// Forward-only plans for evaluation and generation, on any placement.
#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"

namespace penstock {
namespace {

/// The next forward of a rank among (stage, micro-batch) that are ready: the deepest stage, then the lowest
/// micro-batch. next[micro-batch] is the stage that it has reached. Returns the micro-batch, or -1.
Index choose(const Plan& plan, const std::vector<Index>& next, Index rank) {
  Index best = -1;
  for (Index i = 0; i < plan.micro_batches; ++i) {
    const Index stage = next[static_cast<std::size_t>(i)];
    if (stage == plan.stages || plan.rank_of(stage, i) != rank) continue;
    if (best < 0 || stage > next[static_cast<std::size_t>(best)]) best = i;
  }
  return best;
}

}  // namespace

Plan forward_plan(const Placement& placement, Index micro_batches) {
  require<ValueError>(micro_batches >= 1, "a forward plan needs at least one micro-batch, not {}",
                      micro_batches);
  require<ValueError>(!placement.empty() && !placement[0].empty(), "a forward plan needs a placement");
  Plan plan;
  plan.schedule = "forward";
  plan.micro_batches = micro_batches;
  plan.stages = std::ssize(placement[0]);
  plan.forward_only = true;
  for (const auto& map : placement) {
    require<ValueError>(std::ssize(map) == plan.stages, "replicas of {} and {} stages", plan.stages,
                        map.size());
    for (const Index rank : map) {
      require<ValueError>(rank >= 0, "a stage is placed on rank {}", rank);
      plan.pp = std::max(plan.pp, rank + 1);
    }
  }
  plan.placement = placement;
  // Fewer micro-batches than replicas leave the last replicas out.
  if (micro_batches < std::ssize(placement)) plan.placement.resize(static_cast<std::size_t>(micro_batches));
  const Index replicas = std::ssize(plan.placement);
  for (Index i = 0; i < micro_batches; ++i) plan.replica.push_back(i * replicas / micro_batches);
  plan.rows.resize(static_cast<std::size_t>(plan.pp));

  // Unit time: in each round every rank takes at most one forward that was ready when the round began.
  std::vector<Index> next(static_cast<std::size_t>(micro_batches), 0);
  for (Index left = micro_batches * plan.stages; left > 0;) {
    const std::vector<Index> ready = next;
    for (Index rank = 0; rank < plan.pp; ++rank) {
      const Index i = choose(plan, ready, rank);
      if (i < 0) continue;
      Index& stage = next[static_cast<std::size_t>(i)];
      plan.rows[static_cast<std::size_t>(rank)].push_back(Action{ActionKind::F, stage, i});
      ++stage;
      --left;
    }
  }
  return plan;
}

}  // namespace penstock
