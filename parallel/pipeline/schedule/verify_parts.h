// The parts of the verifier, each one or two rules of schedules.md, section 1.5.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock {

/// Rules 1 and 2 and "no rank is empty": every (stage, micro-batch) has one F, and one B or one I and one W,
/// on one rank, in that order; at most one RECOMPUTE between F and backward; numbers in range and without
/// holes.
std::optional<Violation> check_actions(const Plan& plan);

/// Rule 3: with R paths of micro-batches through the ranks every stage lives on R ranks, and the paths carry
/// the same number of micro-batches up to one; the plan's own placement says the same. Needs check_actions to
/// have passed.
std::optional<Violation> check_paths(const Plan& plan);

/// Rule 5, of a lowered plan: SENDs and RECVs are in bijection with the values that cross ranks, each SEND
/// after its producer, each RECV before its consumer. Needs check_actions and check_paths to have passed.
std::optional<Violation> check_messages(const Plan& plan);

/// A rank that cannot go on: what stands next in its row, what it waits for, and the rank that would bring it
/// (-1: none).
struct Blocked {
  Index rank = -1;
  Index position = -1;
  std::string action;
  std::string waits_for;
  Index on = -1;
};

/// The fault of a lock: the ranks that wait for one another, in a circle where there is one. `blocked` is not
/// empty.
Violation circle(const std::vector<Blocked>& blocked, std::string rule);

}  // namespace penstock
