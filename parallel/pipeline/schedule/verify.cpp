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

constexpr const char* kOptimizer = "optimizer placement";

/// What has been seen of one stage on one rank.
struct StageUpdates {
  Index own = 0;  // micro-batches that the rank runs at this stage
  Index backwards = 0;
  Index reductions = 0;
  Index steps = 0;
};

/// REDUCE_GRAD and STEP of one rank: a pair a stage and update, each after exactly the backwards that its
/// update takes, and nothing but STEPs after the STEPs of a plan with one update. Appends the stages to
/// `reduced` in their order.
std::optional<Violation> check_updates(const Plan& plan, Index rank, std::vector<Index>& reduced) {
  const Index period = plan.micro_batches_per_update;
  const bool one_update = period == plan.micro_batches;
  std::map<Index, StageUpdates> stages;
  for (const Index stage : plan.stages_of(rank))
    for (Index i = 0; i < plan.micro_batches; ++i)
      stages[stage].own += plan.rank_of(stage, i) == rank ? 1 : 0;
  const auto& row = plan.rows[static_cast<std::size_t>(rank)];
  bool stepped = false;
  for (std::size_t position = 0; position < row.size(); ++position) {
    if (!row[position]) continue;
    const Action& action = *row[position];
    const auto fault = [&](std::string text) {
      return Violation{rank, static_cast<Index>(position), to_text(action), kOptimizer, std::move(text)};
    };
    const bool reduces = action.kind == ActionKind::REDUCE_GRAD;
    if (stepped && one_update && (reduces || is_compute(action.kind) || is_communication(action.kind)))
      return fault("it comes after the rank's first STEP");
    if (is_compute(action.kind))
      for (const Action& part : parts(action))
        if (part.kind == ActionKind::B || part.kind == ActionKind::W) ++stages[part.stage].backwards;
    if (!reduces && action.kind != ActionKind::STEP) continue;
    const auto known = stages.find(action.stage);
    if (known == stages.end()) return fault("the rank does not hold this stage");
    StageUpdates& stage = known->second;
    const Index number = reduces ? ++stage.reductions : ++stage.steps;
    const Index takes = one_update ? stage.own : std::min(stage.own, number * period);
    if (stage.backwards != takes)
      return fault(fmt::format("it stands after {} of the stage's backwards; the update takes {}",
                               stage.backwards, takes));
    if (reduces) {
      reduced.push_back(action.stage);
    } else {
      stepped = true;
      if (stage.steps != stage.reductions) return fault("no REDUCE_GRAD of the stage precedes it");
    }
  }
  for (const auto& entry : stages) {
    const StageUpdates& stage = entry.second;
    const Index updates = one_update ? 1 : stage.own / period;
    if (stage.reductions == updates && stage.steps == updates) continue;
    const bool reduction = stage.reductions != updates;
    const Action missing{reduction ? ActionKind::REDUCE_GRAD : ActionKind::STEP, entry.first};
    return Violation{rank, -1, to_text(missing), kOptimizer,
                     fmt::format("{} of {} are there", reduction ? stage.reductions : stage.steps, updates)};
  }
  return std::nullopt;
}

/// The stages in `from` that are also in `with`, in the order of `from`.
std::vector<Index> shared(const std::vector<Index>& from, const std::vector<Index>& with) {
  std::vector<Index> stages;
  for (const Index stage : from)
    if (std::find(with.begin(), with.end(), stage) != with.end()) stages.push_back(stage);
  return stages;
}

std::optional<Violation> check_optimizer(const Plan& plan) {
  std::vector<std::vector<Index>> reduced(plan.rows.size());
  for (Index rank = 0; rank < plan.pp; ++rank)
    if (auto violation = check_updates(plan, rank, reduced[static_cast<std::size_t>(rank)])) return violation;
  if (plan.placement.size() < 2) return std::nullopt;
  for (std::size_t a = 0; a < reduced.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (shared(reduced[a], reduced[b]) != shared(reduced[b], reduced[a]))
        return Violation{
            static_cast<Index>(a), -1, "REDUCE_GRAD", "one order of collectives",
            fmt::format("ranks {} and {} reduce the stages that they share in different orders", b, a)};
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
