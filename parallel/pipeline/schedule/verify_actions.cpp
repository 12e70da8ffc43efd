// Verifier, rules 1 to 3: which actions there are, who owns them, and the paths of the micro-batches.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "parallel/pipeline/schedule/verify_parts.h"

namespace penstock {
namespace {

constexpr const char* kOnce = "each action exactly once";
constexpr const char* kRange = "numbers in range";
constexpr const char* kOwner = "one owner";
constexpr const char* kOrder = "F, then B or I and W";
constexpr const char* kEmpty = "no rank is empty";
constexpr const char* kPaths = "placement";

struct Place {
  Index rank = -1;
  Index position = -1;
  bool there() const { return rank >= 0; }
};

/// Where the actions of one (stage, micro-batch) stand.
struct Unit {
  Place f, b, i, w, recompute;

  Place* of(ActionKind kind) {
    switch (kind) {
      case ActionKind::F:
        return &f;
      case ActionKind::B:
        return &b;
      case ActionKind::I:
        return &i;
      case ActionKind::W:
        return &w;
      default:
        return &recompute;
    }
  }
  Index any_rank() const {
    for (const Place* place : {&f, &b, &i, &w, &recompute})
      if (place->there()) return place->rank;
    return -1;
  }
};

using Key = std::pair<Index, Index>;  // (micro-batch, stage)
using Units = std::map<Key, Unit>;

std::string text(Index stage, ActionKind kind, Index micro_batch) {
  return to_text(Action{kind, stage, micro_batch});
}

/// The rank that a (stage, micro-batch) without any action belongs on: what the plan's placement says, or
/// where the micro-batch with the most similar path has the stage; -1 where nobody has it.
Index home(const Plan& plan, const Units& units, Index stage, Index micro_batch) {
  if (!plan.placement.empty() && micro_batch < std::ssize(plan.replica))
    return plan.rank_of(stage, micro_batch);
  const auto ranks_of = [&](Index i) {
    std::map<Index, Index> ranks;  // stage -> rank
    for (auto at = units.lower_bound({i, 0}); at != units.end() && at->first.first == i; ++at)
      ranks[at->first.second] = at->second.any_rank();
    return ranks;
  };
  const auto own = ranks_of(micro_batch);
  Index best = -1;
  Index best_score = -1;
  for (auto at = units.begin(); at != units.end(); at = units.lower_bound({at->first.first + 1, 0})) {
    const auto other = ranks_of(at->first.first);
    const auto there = other.find(stage);
    if (there == other.end()) continue;
    Index score = 0;
    for (const auto& [s, rank] : own) {
      const auto same = other.find(s);
      if (same != other.end() && same->second == rank) ++score;
    }
    if (score > best_score) {
      best_score = score;
      best = there->second;
    }
  }
  return best;
}

std::optional<Violation> collect(const Plan& plan, Units& units) {
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
    bool empty = true;
    for (std::size_t position = 0; position < plan.rows[rank].size(); ++position) {
      const Cell& cell = plan.rows[rank][position];
      if (!cell || !is_compute(cell->kind)) continue;
      empty = false;
      const Place here{static_cast<Index>(rank), static_cast<Index>(position)};
      const auto fault = [&](const char* rule, std::string why) {
        return Violation{here.rank, here.position, to_text(*cell), rule, std::move(why)};
      };
      for (const Action& part : parts(*cell)) {
        if (part.stage < 0 || part.stage >= plan.stages)
          return fault(kRange,
                       fmt::format("stage {} of a plan with stages 0 to {}", part.stage, plan.stages - 1));
        if (part.micro_batch < 0 || part.micro_batch >= plan.micro_batches)
          return fault(kRange, fmt::format("micro-batch {} of a plan with micro-batches 0 to {}",
                                           part.micro_batch, plan.micro_batches - 1));
        if (plan.forward_only && part.kind != ActionKind::F)
          return fault(kOnce, "a forward-only plan has forwards alone");
        Place* place = units[{part.micro_batch, part.stage}].of(part.kind);
        if (place->there())
          return fault(kOnce, fmt::format("{} is already at rank {}, position {}", to_text(part), place->rank,
                                          place->position));
        *place = here;
      }
    }
    if (empty) return Violation{static_cast<Index>(rank), -1, "", kEmpty, "the rank has nothing to compute"};
  }
  return std::nullopt;
}

std::optional<Violation> check_unit(const Plan& plan, Index stage, Index micro_batch, const Unit& unit) {
  const auto at = [&](const Place& place, ActionKind kind, const char* rule, std::string why) {
    return Violation{place.rank, place.position, text(stage, kind, micro_batch), rule, std::move(why)};
  };
  const auto missing = [&](ActionKind kind, const char* why) {
    return Violation{unit.any_rank(), -1, text(stage, kind, micro_batch), kOnce, why};
  };
  if (!unit.f.there()) return missing(ActionKind::F, "the forward is missing");
  if (plan.forward_only) return std::nullopt;
  if (unit.b.there() && unit.i.there())
    return at(unit.i, ActionKind::I, kOnce, "there is a B of it too; one B, or one I and one W, is allowed");
  if (unit.b.there() && unit.w.there())
    return at(unit.w, ActionKind::W, kOnce, "there is a B of it too; one B, or one I and one W, is allowed");
  if (unit.i.there() && !unit.w.there()) return missing(ActionKind::W, "there is an I without its W");
  if (unit.w.there() && !unit.i.there()) return missing(ActionKind::I, "there is a W without its I");
  if (!unit.b.there() && !unit.i.there()) return missing(ActionKind::B, "the backward is missing");

  struct Item {
    ActionKind kind;
    const Place* place;
  };
  std::vector<Item> order = {{ActionKind::F, &unit.f}};
  if (unit.recompute.there()) order.push_back({ActionKind::RECOMPUTE, &unit.recompute});
  if (unit.b.there()) order.push_back({ActionKind::B, &unit.b});
  if (unit.i.there()) order.push_back({ActionKind::I, &unit.i});
  if (unit.w.there()) order.push_back({ActionKind::W, &unit.w});
  for (std::size_t k = 1; k < order.size(); ++k)
    if (order[k].place->rank != unit.f.rank)
      return at(*order[k].place, order[k].kind, kOwner,
                fmt::format("its forward is on rank {}", unit.f.rank));
  for (std::size_t k = 1; k < order.size(); ++k)
    if (order[k].place->position <= order[k - 1].place->position)
      return at(*order[k].place, order[k].kind, kOrder,
                fmt::format("{} comes at position {}; it must come before",
                            text(stage, order[k - 1].kind, micro_batch), order[k - 1].place->position));
  return std::nullopt;
}

}  // namespace

std::optional<Violation> check_actions(const Plan& plan) {
  if (plan.rows.empty() || std::ssize(plan.rows) != plan.pp)
    return Violation{-1, -1, "", kEmpty, fmt::format("{} rows for {} ranks", plan.rows.size(), plan.pp)};
  Units units;
  if (auto violation = collect(plan, units)) return violation;
  // Without a hole the keys are (0, 0), (0, 1), ... (micro_batches - 1, stages - 1): the first that differs
  // is missing.
  auto known = units.begin();
  for (Index i = 0; i < plan.micro_batches; ++i) {
    for (Index stage = 0; stage < plan.stages; ++stage, ++known) {
      if (known == units.end() || known->first != Key{i, stage})
        return Violation{home(plan, units, stage, i), -1, text(stage, ActionKind::F, i), kOnce,
                         fmt::format("micro-batch {} has nothing at stage {}", i, stage)};
      if (auto violation = check_unit(plan, stage, i, known->second)) return violation;
    }
  }
  return std::nullopt;
}

std::optional<Violation> check_paths(const Plan& plan) {
  const auto stages = static_cast<std::size_t>(plan.stages);
  std::vector<std::vector<Place>> places(static_cast<std::size_t>(plan.micro_batches),
                                         std::vector<Place>(stages));
  for (std::size_t rank = 0; rank < plan.rows.size(); ++rank)
    for (std::size_t position = 0; position < plan.rows[rank].size(); ++position)
      if (const Cell& cell = plan.rows[rank][position]; cell && is_compute(cell->kind))
        for (const Action& part : parts(*cell))
          if (part.kind == ActionKind::F)
            places[static_cast<std::size_t>(part.micro_batch)][static_cast<std::size_t>(part.stage)] = {
                static_cast<Index>(rank), static_cast<Index>(position)};
  const auto fault = [&](std::size_t stage, std::size_t i, std::string why) {
    const Place& place = places[i][stage];
    return Violation{place.rank, place.position,
                     text(static_cast<Index>(stage), ActionKind::F, static_cast<Index>(i)), kPaths,
                     std::move(why)};
  };

  if (!plan.placement.empty()) {
    if (std::ssize(plan.replica) != plan.micro_batches)
      return Violation{-1, -1, "", kPaths,
                       fmt::format("replicas of {} micro-batches are given for {}", plan.replica.size(),
                                   plan.micro_batches)};
    for (std::size_t i = 0; i < places.size(); ++i)
      for (std::size_t stage = 0; stage < stages; ++stage) {
        const Index rank = plan.rank_of(static_cast<Index>(stage), static_cast<Index>(i));
        if (places[i][stage].rank != rank)
          return fault(stage, i, fmt::format("the placement has it on rank {}", rank));
      }
  }

  std::map<std::vector<Index>, std::vector<std::size_t>> paths;  // ranks by stage -> micro-batches
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::vector<Index> path;
    for (const Place& place : places[i]) path.push_back(place.rank);
    paths[path].push_back(i);
  }
  if (!plan.placement.empty() && paths.size() != plan.placement.size())
    return Violation{-1, -1, "", kPaths,
                     fmt::format("{} replicas are placed and the micro-batches take {} paths",
                                 plan.placement.size(), paths.size())};
  // Two paths that share a rank at one stage and part at another are no replicas: name the rarer one.
  for (std::size_t stage = 0; stage < stages; ++stage) {
    std::map<Index, const std::pair<const std::vector<Index>, std::vector<std::size_t>>*> seen;
    for (const auto& path : paths) {
      const auto [other, added] = seen.try_emplace(path.first[stage], &path);
      if (added) continue;
      // (-carried, first micro-batch): the path that carries more, or was there first, is the usual one.
      const auto weight = [](const std::vector<std::size_t>& carried) {
        return std::pair{-std::ssize(carried), carried.front()};
      };
      const auto& usual = weight(other->second->second) < weight(path.second) ? *other->second : path;
      const auto& rare = &usual == &path ? *other->second : path;
      std::size_t parting = 0;
      while (rare.first[parting] == usual.first[parting]) ++parting;
      return fault(
          parting, rare.second.front(),
          fmt::format(
              "stage {} lives on rank {} for micro-batch {}, which shares stage {} on rank {} with it",
              parting, usual.first[parting], usual.second.front(), stage, usual.first[stage]));
    }
  }
  const auto& [fewest, most] =
      std::minmax_element(paths.begin(), paths.end(),
                          [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most->second.size() > fewest->second.size() + 1)
    return fault(
        0, fewest->second.front(),
        fmt::format("its path carries {} micro-batches and that of micro-batch {} carries {}; they must be "
                    "spread evenly",
                    fewest->second.size(), most->second.front(), most->second.size()));
  return std::nullopt;
}

}  // namespace penstock
