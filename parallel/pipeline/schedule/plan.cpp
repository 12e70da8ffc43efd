// Queries on a plan, placements, and what can be read off rows alone.
#include "parallel/pipeline/schedule/plan.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace penstock {

Index Plan::rank_of(Index stage, Index micro_batch) const {
  require<ValueError>(micro_batch >= 0 && micro_batch < std::ssize(replica),
                      "micro-batch {} is out of range: the plan has {}", micro_batch, replica.size());
  const auto& map = placement[static_cast<std::size_t>(replica[static_cast<std::size_t>(micro_batch)])];
  require<ValueError>(stage >= 0 && stage < std::ssize(map), "stage {} is out of range: the plan has {}",
                      stage, map.size());
  return map[static_cast<std::size_t>(stage)];
}

std::vector<Index> Plan::stages_of(Index rank) const {
  std::vector<Index> result;
  for (const auto& map : placement)
    for (std::size_t stage = 0; stage < map.size(); ++stage)
      if (map[stage] == rank) result.push_back(static_cast<Index>(stage));
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<Action> Plan::actions(Index rank) const {
  require<ValueError>(rank >= 0 && rank < std::ssize(rows), "rank {} is out of range: the plan has {}", rank,
                      rows.size());
  std::vector<Action> result;
  for (const Cell& cell : rows[static_cast<std::size_t>(rank)])
    if (cell) result.push_back(*cell);
  return result;
}

Placement linear_placement(Index ranks) { return looped_placement(ranks, 1); }

Placement looped_placement(Index ranks, Index chunks) {
  require<ValueError>(ranks >= 1 && chunks >= 1,
                      "a placement needs at least one rank and chunk, not {} and {}", ranks, chunks);
  Placement placement(1);
  for (Index stage = 0; stage < ranks * chunks; ++stage) placement[0].push_back(stage % ranks);
  return placement;
}

Plan plan_from_rows(std::string schedule, std::vector<std::vector<Cell>> rows) {
  Plan plan;
  plan.schedule = std::move(schedule);
  plan.pp = std::ssize(rows);
  std::size_t forwards = 0;
  for (const auto& row : rows) {
    for (const Cell& cell : row) {
      if (!cell) continue;
      plan.lowered = plan.lowered || is_communication(cell->kind);
      if (!is_compute(cell->kind)) continue;
      for (const Action& part : parts(*cell)) {
        plan.stages = std::max(plan.stages, part.stage + 1);
        plan.micro_batches = std::max(plan.micro_batches, part.micro_batch + 1);
        forwards += part.kind == ActionKind::F ? 1 : 0;
      }
    }
  }
  plan.rows = std::move(rows);
  plan.micro_batches_per_update = plan.micro_batches;

  // The path of each micro-batch through the ranks, by its forwards. With a hole anywhere there is no
  // placement.
  const auto stages = static_cast<std::size_t>(plan.stages);
  const auto micro_batches = static_cast<std::size_t>(plan.micro_batches);
  if (forwards == 0 || forwards % stages != 0 || forwards / stages != micro_batches) return plan;
  std::vector<std::vector<Index>> paths(micro_batches, std::vector<Index>(stages, -1));
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    for (const Cell& cell : plan.rows[rank]) {
      if (!cell) continue;
      for (const Action& part : parts(*cell)) {
        if (part.kind != ActionKind::F) continue;
        Index& owner =
            paths[static_cast<std::size_t>(part.micro_batch)][static_cast<std::size_t>(part.stage)];
        if (owner >= 0) return plan;
        owner = static_cast<Index>(rank);
      }
    }
  }
  std::map<std::vector<Index>, Index> replicas;
  for (auto& path : paths) {
    const auto [known, added] = replicas.try_emplace(path, std::ssize(plan.placement));
    if (added) plan.placement.push_back(path);
    plan.replica.push_back(known->second);
  }
  return plan;
}

std::vector<std::vector<Cell>> rows_from_text(const std::vector<std::string>& rows) {
  std::vector<std::vector<Cell>> result;
  for (const std::string& row : rows) {
    std::vector<Cell>& cells = result.emplace_back();
    std::size_t position = 0;
    while ((position = row.find_first_not_of(' ', position)) != std::string::npos) {
      const std::size_t end = std::min(row.find(' ', position), row.size());
      const std::string word = row.substr(position, end - position);
      cells.push_back(word == "-" ? Cell() : Cell(parse_action(word)));
      position = end;
    }
  }
  return result;
}

std::string row_text(const Plan& plan, Index rank) {
  std::string text;
  for (const Action& action : plan.actions(rank)) {
    if (!text.empty()) text += ' ';
    text += to_text(action);
  }
  return text;
}

}  // namespace penstock
