// GPipe (1811.06965, section 2.2): every forward, then every backward.
#include "parallel/pipeline/schedule/family.h"
#include "parallel/pipeline/schedule/generate.h"

namespace penstock {

Plan generate_gpipe(const GenerateOptions& options) {
  Plan plan = linear_plan("gpipe", options);
  for (Index rank = 0; rank < plan.pp; ++rank) {
    auto& row = plan.rows[static_cast<std::size_t>(rank)];
    for (Index i = 0; i < plan.micro_batches; ++i) row.push_back(Action{ActionKind::F, rank, i});
    for (Index i = 0; i < plan.micro_batches; ++i) row.push_back(Action{ActionKind::B, rank, i});
  }
  return plan;
}

}  // namespace penstock
