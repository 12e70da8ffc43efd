// The verifier's order of business: counts, owners, paths, order, deadlock, messages, transports, optimizer.
// (schedules.md, section 1.5, has the rules.)
#include "parallel/pipeline/schedule/verify.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "parallel/pipeline/schedule/dependencies.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/pipeline/schedule/verify_parts.h"

namespace penstock {
namespace {

/// Rule 4: run without communication, every rank comes to its end.
std::optional<Violation> check_progress(const Plan& plan) {
  const ValueTable table(plan);
  const Progress progress = run_in_order(plan, table, [](Index, const Action&) {});
  if (progress.complete) return std::nullopt;
  std::vector<Index> maker(table.size(), -1);  // rank of every value
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank)
    for (const Cell& cell : plan.rows[rank])
      if (cell && is_compute(cell->kind))
        for (const Action& part : parts(*cell))
          if (const auto value = table.makes(part)) maker[*value] = static_cast<Index>(rank);
  std::vector<Blocked> blocked;
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    const std::size_t position = progress.position[rank];
    if (position == plan.rows[rank].size()) continue;
    const Action& action = *plan.rows[rank][position];
    const std::size_t value = *progress.waits_for(table, action);
    blocked.push_back({static_cast<Index>(rank), static_cast<Index>(position), to_text(action),
                       table.text(value), maker[value]});
  }
  return circle(blocked, "order of dependencies");
}

/// REDUCE_GRAD and STEP: one pair a stage and update, each after exactly the backwards of its updates; STEP
/// after its REDUCE_GRAD; ranks that share stages reduce them in one order.
std::optional<Violation> check_optimizer(const Plan& plan) {
  const Index period = plan.micro_batches_per_update;
  std::vector<std::vector<Index>> reductions(plan.rows.size());  // stages in order, per rank
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    struct Count {
      Index backwards = 0, reductions = 0, steps = 0, own = 0;
    };
    std::map<Index, Count> counts;
    for (const Index stage : plan.stages_of(static_cast<Index>(rank))) counts[stage];
    for (Index i = 0; i < plan.micro_batches; ++i)
      for (auto& [stage, count] : counts)
        if (plan.rank_of(stage, i) == static_cast<Index>(rank)) ++count.own;
    const auto fault = [&](std::size_t position, const Action& action, std::string text) {
      return Violation{static_cast<Index>(rank), static_cast<Index>(position), to_text(action),
                       "optimizer placement", std::move(text)};
    };
    // How many backwards of the stage on this rank the next update covers: all of them in a plan with one
    // update.
    const auto covered = [&](const Count& count, Index updates) {
      return period == plan.micro_batches ? count.own : std::min(count.own, updates * period);
    };
    bool stepped = false;
    for (std::size_t position = 0; position < plan.rows[rank].size(); ++position) {
      const Cell& cell = plan.rows[rank][position];
      if (!cell) continue;
      const Action& action = *cell;
      const bool moves = is_compute(action.kind) || is_communication(action.kind);
      if (stepped && period == plan.micro_batches && (moves || action.kind == ActionKind::REDUCE_GRAD))
        return fault(position, action, "it comes after the rank's first STEP");
      if (is_compute(action.kind))
        for (const Action& part : parts(action))
          if (part.kind == ActionKind::B || part.kind == ActionKind::W) ++counts[part.stage].backwards;
      if (action.kind != ActionKind::REDUCE_GRAD && action.kind != ActionKind::STEP) continue;
      const auto known = counts.find(action.stage);
      if (known == counts.end()) return fault(position, action, "the rank does not hold this stage");
      Count& count = known->second;
      const bool reduce = action.kind == ActionKind::REDUCE_GRAD;
      const Index updates = reduce ? ++count.reductions : ++count.steps;
      if (count.backwards != covered(count, updates))
        return fault(position, action,
                     fmt::format("it stands after {} of the stage's backwards; the update takes {}",
                                 count.backwards, covered(count, updates)));
      if (reduce) {
        reductions[rank].push_back(action.stage);
      } else {
        stepped = true;
        if (count.steps != count.reductions)
          return fault(position, action, "no REDUCE_GRAD of the stage precedes it");
      }
    }
    for (const auto& [stage, count] : counts) {
      const Index updates = period == plan.micro_batches ? 1 : count.own / period;
      const auto missing = [&](const char* what, Index there) {
        return Violation{static_cast<Index>(rank), -1, fmt::format("{}{}", stage, what),
                         "optimizer placement", fmt::format("{} of {} are there", there, updates)};
      };
      if (count.reductions != updates) return missing("REDUCE_GRAD", count.reductions);
      if (count.steps != updates) return missing("STEP", count.steps);
    }
  }
  for (std::size_t a = 0; plan.placement.size() > 1 && a < plan.rows.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const auto shared = [&](std::size_t from, std::size_t with) {
        std::vector<Index> stages;
        for (const Index stage : reductions[from])
          if (std::find(reductions[with].begin(), reductions[with].end(), stage) != reductions[with].end())
            stages.push_back(stage);
        return stages;
      };
      if (shared(a, b) != shared(b, a))
        return Violation{
            static_cast<Index>(a), -1, "REDUCE_GRAD", "one order of collectives",
            fmt::format("ranks {} and {} reduce the stages that they share in different orders", b, a)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(Transport transport) {
  switch (transport) {
    case Transport::buffered:
      return "buffered";
    case Transport::fifo:
      return "fifo";
    case Transport::rendezvous:
      return "rendezvous";
  }
  throw ValueError("{} is no transport", static_cast<int>(transport));
}

std::string Violation::message() const {
  std::string where = rank < 0 ? "no rank" : fmt::format("rank {}", rank);
  where += position < 0 ? ", missing" : fmt::format(", position {}", position);
  if (!action.empty()) where += ", " + action;
  return fmt::format("{}: {} (rule: {})", where, text, rule);
}

std::optional<Violation> verify(const Plan& plan, const VerifyOptions& options) {
  if (auto violation = check_actions(plan)) return violation;
  if (auto violation = check_paths(plan)) return violation;
  if (auto violation = check_progress(plan)) return violation;
  if (options.optimizer && !plan.forward_only)
    if (auto violation = check_optimizer(plan)) return violation;
  if (plan.lowered) {
    if (auto violation = check_messages(plan)) return violation;
    for (const Transport transport : options.transports)
      if (auto violation = check_transport(plan.rows, transport)) return violation;
    return std::nullopt;
  }
  const Plan lowered = lower(plan);
  if (auto violation = check_messages(lowered)) return violation;
  for (const Transport transport : options.transports)
    if (auto violation = check_transport(lowered.rows, transport)) return violation;
  return std::nullopt;
}

void require_verified(const Plan& plan, const VerifyOptions& options) {
  if (const auto violation = verify(plan, options))
    throw ValueError("schedule {} is refused: {}", plan.schedule, violation->message());
}

}  // namespace penstock
