// The 1F1B family: a warm-up of forwards, then one forward and one backward in turn (PipeDream-Flush,
// 2006.09503, section 3.2; DAPPLE, 2007.01045, section 3).
#include <algorithm>

#include "parallel/pipeline/schedule/family.h"
#include "parallel/pipeline/schedule/generate.h"

namespace penstock {

Plan generate_one_f_one_b(const GenerateOptions& options) {
  Plan plan = linear_plan("1f1b", options);
  for (Index rank = 0; rank < plan.pp; ++rank) {
    auto& row = plan.rows[static_cast<std::size_t>(rank)];
    const Index warm_up = std::min(plan.pp - 1 - rank, plan.micro_batches);
    for (Index i = 0; i < warm_up; ++i) row.push_back(Action{ActionKind::F, rank, i});
    for (Index i = 0; i < plan.micro_batches; ++i) {
      if (warm_up + i < plan.micro_batches) row.push_back(Action{ActionKind::F, rank, warm_up + i});
      row.push_back(Action{ActionKind::B, rank, i});
    }
  }
  return plan;
}

}  // namespace penstock
