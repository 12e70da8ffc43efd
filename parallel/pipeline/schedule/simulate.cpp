// The event simulation (schedules.md, sections 1.1 and 1.2, has the definitions of its quantities).
#include "parallel/pipeline/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "parallel/pipeline/schedule/dependencies.h"

namespace penstock {
namespace {

/// One number per stage: a single one is that of a pp-th of the model, a list is taken as it is.
std::vector<double> per_stage(const char* what, const std::vector<double>& given, const Plan& plan) {
  require<ValueError>(given.size() == 1 || std::ssize(given) == plan.stages,
                      "{}: {} numbers for {} stages; one, or one a stage, is allowed", what, given.size(),
                      plan.stages);
  for (const double value : given)
    require<ValueError>(std::isfinite(value) && value >= 0, "{}: {} is not finite and 0 or more", what,
                        value);
  if (given.size() > 1) return given;
  const double scaled = given[0] * static_cast<double>(plan.pp) / static_cast<double>(plan.stages);
  return std::vector<double>(static_cast<std::size_t>(plan.stages), scaled);
}

/// The cost model laid out by stage.
struct StageCosts {
  StageCosts(const Plan& plan, const CostModel& costs)
      : f(per_stage("cost of F", costs.f, plan)),
        i(per_stage("cost of I", costs.i, plan)),
        w(per_stage("cost of W", costs.w, plan)),
        memory_f(per_stage("memory of F", costs.memory_f, plan)),
        memory_i(per_stage("memory of I", costs.memory_i, plan)),
        memory_w(per_stage("memory of W", costs.memory_w, plan)) {
    if (costs.overlap) overlap = per_stage("cost of OVERLAP_F_B", {*costs.overlap}, plan)[0];
    require<ValueError>(std::isfinite(costs.hop) && costs.hop >= 0, "hop: {} is not finite and 0 or more",
                        costs.hop);
  }

  double duration(const Action& action) const {
    const auto s = static_cast<std::size_t>(action.stage);
    switch (action.kind) {
      case ActionKind::F:
      case ActionKind::RECOMPUTE:
        return f[s];
      case ActionKind::I:
        return i[s];
      case ActionKind::W:
        return w[s];
      case ActionKind::B:
        return i[s] + w[s];
      case ActionKind::OVERLAP_F_B: {
        const auto b = static_cast<std::size_t>(action.backward_stage);
        return overlap.value_or(f[s] + i[b] + w[b]);
      }
      default:
        return 0;
    }
  }

  std::vector<double> f, i, w, memory_f, memory_i, memory_w;  // [stage]
  std::optional<double> overlap;
};

/// What a rank holds, followed in list order.
struct Memory {
  double held = 0, peak = 0;
  Index in_flight = 0, peak_in_flight = 0;

  void follow(const Action& part, const StageCosts& costs, bool forward_only) {
    const auto s = static_cast<std::size_t>(part.stage);
    if (part.kind == ActionKind::F) {
      held += costs.memory_f[s];
      ++in_flight;
      peak = std::max(peak, held);
      peak_in_flight = std::max(peak_in_flight, in_flight);
    }
    if (part.kind == ActionKind::I || part.kind == ActionKind::B) held -= costs.memory_i[s];
    if (part.kind == ActionKind::W || part.kind == ActionKind::B) {
      held -= costs.memory_w[s];
      --in_flight;
    }
    if (forward_only) {  // nothing is kept for a backward
      held -= costs.memory_f[s];
      --in_flight;
    }
  }
};

bool contains(const Action& action, std::initializer_list<ActionKind> kinds) {
  for (const Action& part : parts(action))
    if (std::find(kinds.begin(), kinds.end(), part.kind) != kinds.end()) return true;
  return false;
}

}  // namespace

Simulation simulate(const Plan& plan, const CostModel& costs) {
  require<ValueError>(plan.stages >= 1 && plan.pp >= 1, "an empty plan cannot be simulated");
  const ValueTable table(plan);
  const StageCosts stage_costs(plan, costs);
  const auto ranks = static_cast<std::size_t>(plan.pp);
  struct Made {
    double end = 0;
    Index rank = -1;
  };
  std::vector<Made> made(table.size());
  std::vector<Memory> memory(ranks);
  Simulation result;
  result.timeline.ranks.resize(ranks);
  result.ranks.resize(ranks);

  const Progress progress = run_in_order(plan, table, [&](Index rank, const Action& action) {
    auto& line = result.timeline.ranks[static_cast<std::size_t>(rank)];
    double start = line.empty() ? 0 : line.back().end;
    for (const Action& part : parts(action)) {
      for (const std::size_t value : table.needs(part))
        start = std::max(start, made[value].end + (made[value].rank == rank ? 0 : costs.hop));
      memory[static_cast<std::size_t>(rank)].follow(part, stage_costs, plan.forward_only);
    }
    const double duration = stage_costs.duration(action);
    line.push_back({action, start, start + duration});
    for (const Action& part : parts(action))
      if (const auto value = table.makes(part)) made[*value] = {start + duration, rank};
    result.ranks[static_cast<std::size_t>(rank)].busy += duration;
  });
  require<ValueError>(progress.complete,
                      "the plan cannot reach its end; `penstock-schedule verify` names the fault");

  double work = 0;
  double ideal = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto& line = result.timeline.ranks[rank];
    RankSimulation& own = result.ranks[rank];
    result.peak.push_back(memory[rank].peak);
    result.peak_in_flight.push_back(memory[rank].peak_in_flight);
    work += own.busy;
    ideal = std::max(ideal, own.busy);
    if (line.empty()) continue;
    own.first_start = line.front().start;
    own.last_end = line.back().end;
    result.makespan = std::max(result.makespan, own.last_end);
    const auto first = std::find_if(line.begin(), line.end(), [](const TimedAction& item) {
      return contains(item.action, {ActionKind::F});
    });
    const auto last = std::find_if(line.rbegin(), line.rend(), [&](const TimedAction& item) {
      return plan.forward_only || contains(item.action, {ActionKind::W, ActionKind::B});
    });
    if (first != line.end() && last != line.rend())
      result.cost = std::max(result.cost, last->end - first->start);
  }
  // Without any time there is no share of it.
  const auto share = [](double part, double whole) {
    return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
  };
  result.bubble_total = 1 - share(work, static_cast<double>(plan.pp) * result.makespan);
  result.bubble_cost = 1 - share(ideal, result.cost);
  result.bubble_ideal = share(result.makespan - ideal, ideal);
  return result;
}

}  // namespace penstock
