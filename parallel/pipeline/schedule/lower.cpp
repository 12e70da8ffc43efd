// Lowering of a compute plan: SEND and RECV in one global order of messages, and the optimizer's actions.
#include "parallel/pipeline/schedule/lower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "parallel/pipeline/schedule/dependencies.h"

namespace penstock {
namespace {

/// The stage that uses what `part` makes, -1 where nobody does; `send` is how it leaves.
struct Use {
  Index stage = -1;
  ActionKind send = ActionKind::SEND_F;
};

Use use_of(const Action& part, Index stages) {
  if (part.kind == ActionKind::F && part.stage + 1 < stages) return {part.stage + 1, ActionKind::SEND_F};
  if (part.kind == ActionKind::B || part.kind == ActionKind::I) return {part.stage - 1, ActionKind::SEND_B};
  return {};
}

bool is_backward_end(ActionKind kind) { return kind == ActionKind::B || kind == ActionKind::W; }

}  // namespace

Plan lower(const Plan& plan) {
  require<ValueError>(!plan.lowered, "the plan is lowered already");
  const ValueTable table(plan);
  Plan result = plan;
  result.lowered = true;
  result.rows.assign(plan.rows.size(), {});
  Progress progress;
  progress.position.assign(plan.rows.size(), 0);
  progress.made.assign(table.size(), 0);

  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
      std::size_t& position = progress.position[rank];
      if (position == plan.rows[rank].size()) continue;
      const Cell& cell = plan.rows[rank][position];
      if (cell && progress.waits_for(table, *cell)) continue;
      moved = true;
      ++position;
      if (!cell) continue;
      result.rows[rank].push_back(cell);
      if (!is_compute(cell->kind)) continue;
      for (const Action& part : parts(*cell)) {
        if (const auto value = table.makes(part)) progress.made[*value] = 1;
        const Use use = use_of(part, plan.stages);
        if (use.stage < 0) continue;
        const auto user = static_cast<std::size_t>(plan.rank_of(use.stage, part.micro_batch));
        if (user == rank) continue;
        const Action send{use.send, part.stage, part.micro_batch};
        result.rows[rank].push_back(send);
        result.rows[user].push_back(peer(send));
      }
    }
  }
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank)
    require<ValueError>(progress.position[rank] == plan.rows[rank].size(),
                        "the plan cannot reach its end; `penstock-schedule verify` names the fault");
  return result;
}

Plan add_optimizer(const Plan& plan) {
  require<ValueError>(!plan.forward_only, "a forward-only plan has no optimizer");
  const Index period = plan.micro_batches_per_update;
  require<ValueError>(period >= 1 && period <= plan.micro_batches,
                      "{} micro-batches an update in a plan of {}: 1 to all of them are allowed", period,
                      plan.micro_batches);
  Plan result = plan;
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    auto& row = result.rows[rank];
    for (const Cell& cell : row)
      require<ValueError>(!cell || cell->kind != ActionKind::STEP, "the plan has its optimizer already");
    // Those of another runtime's file stand where that runtime wants them.
    std::erase_if(row, [](const Cell& cell) {
      return cell && (cell->kind == ActionKind::REDUCE_GRAD || cell->kind == ActionKind::WAIT_REDUCE_GRAD);
    });
    const std::vector<Index> stages = plan.stages_of(static_cast<Index>(rank));
    if (period == plan.micro_batches) {
      for (const Index stage : stages) row.push_back(Action{ActionKind::REDUCE_GRAD, stage});
      for (const Index stage : stages) row.push_back(Action{ActionKind::STEP, stage});
      continue;
    }
    const std::vector<Cell> cells = std::exchange(row, {});
    std::map<Index, Index> backwards;  // stage -> number so far
    std::vector<Index> due;            // stages whose update comes as soon as the sends are out
    const auto update = [&] {
      for (const Index stage : due) {
        row.push_back(Action{ActionKind::REDUCE_GRAD, stage});
        row.push_back(Action{ActionKind::STEP, stage});
      }
      due.clear();
    };
    for (const Cell& cell : cells) {
      if (!cell || !is_send(cell->kind)) update();
      row.push_back(cell);
      if (!cell) continue;
      for (const Action& part : parts(*cell))
        if (is_backward_end(part.kind) && ++backwards[part.stage] % period == 0) due.push_back(part.stage);
    }
    update();
  }
  return result;
}

}  // namespace penstock
