// Dependencies between compute actions and the running of a plan in list order.
#include "parallel/pipeline/schedule/dependencies.h"

#include "core/error.h"

namespace penstock {

ValueTable::ValueTable(const Plan& plan)
    : stages_(static_cast<std::size_t>(plan.stages)),
      micro_batches_(static_cast<std::size_t>(plan.micro_batches)) {
  std::size_t cells = 0;
  for (const auto& row : plan.rows) cells += row.size();
  require<ValueError>(stages_ == 0 || micro_batches_ <= cells / stages_,
                      "a plan of {} cells cannot hold {} micro-batches at {} stages", cells, micro_batches_,
                      stages_);
}

std::vector<std::size_t> ValueTable::needs(const Action& part) const {
  const Index stage = part.stage;
  const Index i = part.micro_batch;
  switch (part.kind) {
    case ActionKind::F:
      if (stage == 0) return {};
      return {forward(stage - 1, i)};
    case ActionKind::B:
    case ActionKind::I:
      if (stage + 1 == static_cast<Index>(stages_)) return {forward(stage, i)};
      return {forward(stage, i), backward(stage + 1, i)};
    case ActionKind::W:
      return {backward(stage, i)};
    case ActionKind::RECOMPUTE:
      return {forward(stage, i)};
    default:
      return {};
  }
}

std::optional<std::size_t> ValueTable::makes(const Action& part) const {
  if (part.kind == ActionKind::F) return forward(part.stage, part.micro_batch);
  if (part.kind == ActionKind::B || part.kind == ActionKind::I) return backward(part.stage, part.micro_batch);
  return std::nullopt;
}

std::string ValueTable::text(std::size_t value) const {
  const bool gradient = value >= stages_ * micro_batches_;
  const std::size_t number = value % (stages_ * micro_batches_);
  return fmt::format("{}{}{}", number / micro_batches_, gradient ? "B" : "F", number % micro_batches_);
}

std::optional<std::size_t> Progress::waits_for(const ValueTable& table, const Action& action) const {
  for (const Action& part : parts(action))
    for (const std::size_t value : table.needs(part))
      if (!made[value]) return value;
  return std::nullopt;
}

Progress run_in_order(const Plan& plan, const ValueTable& table,
                      const std::function<void(Index rank, const Action& action)>& visit) {
  Progress progress;
  progress.position.assign(plan.rows.size(), 0);
  progress.made.assign(table.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    progress.complete = true;
    for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
      const auto& row = plan.rows[rank];
      std::size_t& position = progress.position[rank];
      for (; position < row.size(); ++position) {
        const Cell& cell = row[position];
        if (!cell || !is_compute(cell->kind)) continue;
        if (progress.waits_for(table, *cell)) break;
        visit(static_cast<Index>(rank), *cell);
        for (const Action& part : parts(*cell))
          if (const auto value = table.makes(part)) progress.made[*value] = 1;
        moved = true;
      }
      progress.complete = progress.complete && position == row.size();
    }
  }
  return progress;
}

}  // namespace penstock
