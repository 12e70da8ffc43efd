// Exact, deterministic simulation of a plan under a cost model: when every action starts and ends, how long
// the step takes, how much of it is idle, what is held in memory.
#pragma once

#include <optional>
#include <vector>

#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/schedule/timeline.h"

namespace penstock {

/// Times and memory of the actions, in any unit. One number is the cost of one pp-th of the model and is
/// scaled by pp / stages for a plan with more stages; as many numbers as there are stages are taken as they
/// are.
struct CostModel {
  std::vector<double> f = {1};         // forward
  std::vector<double> i = {1};         // backward for the input; B costs i + w
  std::vector<double> w = {1};         // backward for the weights; RECOMPUTE costs f
  std::optional<double> overlap;       // an OVERLAP_F_B; absent: F + B
  double hop = 0;                      // from a producer's end to a consumer's start on another rank
  std::vector<double> memory_f = {1};  // held by F
  std::vector<double> memory_i = {0};  // freed by I; B frees both
  std::vector<double> memory_w = {1};  // freed by W
};

struct RankSimulation {
  double busy = 0;         // sum of the times of its actions
  double first_start = 0;  // of its first compute action
  double last_end = 0;     // of its last
};

struct Simulation {
  double makespan = 0;       // last end over all ranks, from 0
  double cost = 0;           // largest own span of a rank: end of its last W or B - start of its first F
  double bubble_total = 0;   // 1 - work / (pp makespan)
  double bubble_cost = 0;    // 1 - ideal / cost, ideal = largest busy time of a rank
  double bubble_ideal = 0;   // (makespan - ideal) / ideal
  std::vector<double> peak;  // per rank, memory units
  std::vector<Index> peak_in_flight;  // per rank, chunks from F to W or B
  std::vector<RankSimulation> ranks;
  Timeline timeline;  // compute actions alone; unit "" (that of the costs)
};

/// Runs the plan's compute actions: a rank runs its list in order, one action at a time; start = max(end of
/// the rank's previous action, for each dependency its end, plus the hop where it ran on another rank). SEND,
/// RECV and the kinds without a cost take no time. Throws ValueError for a plan that cannot reach its end
/// (verify first: its message names the fault) and for costs that are negative, not finite or of the wrong
/// number.
Simulation simulate(const Plan& plan, const CostModel& costs);

}  // namespace penstock
