// Published plans of schemes of every kind, with the times that a simulation must give: looped, V and wave
// placements, split backward, overlapped pairs, two replicas, recompute. They exercise verifier, lowering and
// simulator on plans that are not generated here.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule/simulate.h"

namespace penstock::testing {

struct ReferencePlan {
  std::string name;
  CostModel costs;
  double makespan, cost;
  std::vector<double> first_start, last_end;
  std::vector<Index> peak_in_flight;
  Placement placement;
  std::vector<std::string> rows;
};

inline CostModel costs_of(double f, double i, double w, double hop) {
  CostModel costs;
  costs.f = {f};
  costs.i = {i};
  costs.w = {w};
  costs.hop = hop;
  return costs;
}

inline const std::vector<ReferencePlan>& reference_plans() {
  static const std::vector<ReferencePlan> plans = {
      {"interleaved-1f1b 2 4",
       costs_of(1, 1, 1, 0),
       13.5,
       13.5,
       {0, 0.5},
       {13.5, 12.5},
       {5, 3},
       {{0, 1, 0, 1}},
       {"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"}},
      {"looped-bfs 2 4",
       costs_of(1, 1, 1, 0),
       13.5,
       13.5,
       {0, 0.5},
       {13.5, 12.5},
       {8, 8},
       {{0, 1, 0, 1}},
       {"0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3",
        "1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3"}},
      {"zb-h1 4 4",
       costs_of(1, 1, 1, 0),
       15,
       15,
       {0, 1, 2, 3},
       {15, 15, 15, 15},
       {4, 4, 4, 4},
       {{0, 1, 2, 3}},
       {"0F0 0F1 0F2 0F3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3", "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1I2 1W1 1I3 1W2 1W3",
        "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2I3 2W1 2W2 2W3",
        "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3W1 3W2 3W3"}},
      {"zb-v 4 8",
       costs_of(2, 2, 2, 0),
       51,
       48,
       {0, 1, 2, 3},
       {48, 49, 50, 51},
       {8, 8, 8, 8},
       {{0, 1, 2, 3, 3, 2, 1, 0}},
       {"0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0F7 0I0 0W0 7F4 7I4 7W4 "
        "0I1 0W1 7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7",
        "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 6I2 6W2 1F6 1I0 1W0 6F4 6I3 6W3 1F7 1I1 1W1 "
        "6F5 6I4 6W4 1I2 1W2 6F6 6I5 6W5 1I3 1W3 6F7 6I6 6W6 1I4 6I7 1I5 1W4 1I6 1W5 1I7 1W6 6W7 1W7",
        "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 5I1 5W1 2F5 2I0 2W0 5F4 5I2 5W2 2F6 2I1 2W1 5F5 5I3 5W3 "
        "2F7 2I2 2W2 5F6 5I4 5W4 2I3 2W3 5F7 5I5 5W5 2I4 5I6 2I5 5I7 2I6 2W4 2I7 2W5 5W6 5W7 2W6 2W7",
        "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0 3F4 3I0 3W0 4F4 4I1 4W1 3F5 3I1 3W1 4F5 4I2 4W2 3F6 3I2 3W2 "
        "4F6 4I3 4W3 3F7 3I3 3W3 4F7 4I4 4W4 3I4 4I5 3I5 4I6 3I6 4I7 3I7 3W4 4W5 4W6 4W7 3W5 3W6 3W7"}},
      {"dualpipe 4 8",
       costs_of(1, 1, 1, 0),
       26,
       26,
       {0, 1, 1, 0},
       {26, 26, 26, 26},
       {5, 5, 5, 5},
       {{0, 1, 2, 3}, {3, 2, 1, 0}},
       {"0F0 0F1 0F2 3F4 3I4 3W4 3F5 (0F3;3B5)OVERLAP_F_B (3F6;0B0)OVERLAP_F_B 3B6 (3F7;0B1)OVERLAP_F_B 3B7 "
        "0I2 0W2 0I3 0W3",
        "1F0 2F4 1F1 2F5 1F2 2B4 (2F6;1B0)OVERLAP_F_B (1F3;2B5)OVERLAP_F_B (2F7;1B1)OVERLAP_F_B 2B6 1B2 2I7 "
        "1I3 2W7 1W3",
        "1F4 2F0 1F5 2F1 1F6 2B0 (2F2;1B4)OVERLAP_F_B (1F7;2B1)OVERLAP_F_B (2F3;1B5)OVERLAP_F_B 2B2 1B6 2I3 "
        "1I7 2W3 1W7",
        "0F4 0F5 0F6 3F0 3I0 3W0 3F1 (0F7;3B1)OVERLAP_F_B (3F2;0B4)OVERLAP_F_B 3B2 (3F3;0B5)OVERLAP_F_B 3B3 "
        "0I6 0W6 0I7 0W7"}},
      {"dualpipev 2 4",
       costs_of(2, 2, 2, 0),
       26,
       26,
       {0, 1},
       {26, 26},
       {5, 5},
       {{0, 1, 1, 0}},
       {"0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 (3F3;0B1)OVERLAP_F_B 3B3 "
        "0I2 0W2 0I3 0W3",
        "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 "
        "1I3 2W3 1W3"}},
      {"chimera 4 4",
       costs_of(1, 1, 1, 0),
       16,
       16,
       {0, 1, 1, 0},
       {16, 14, 14, 16},
       {3, 4, 4, 3},
       {{0, 1, 2, 3}, {3, 2, 1, 0}},
       {"0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1", "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1",
        "1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3", "0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3"}},
      {"hanayo 4 4",
       costs_of(1, 1, 1, 0),
       18,
       18,
       {0, 0.5, 1, 1.5},
       {18, 17, 16, 15},
       {5, 6, 8, 8},
       {{0, 1, 2, 3, 3, 2, 1, 0}},
       {"0F0 0F1 0F2 0F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 0B0 0B1 0B2 0B3",
        "1F0 1F1 1F2 1F3 6F0 6F1 6B0 6F2 6B1 6F3 6B2 6B3 1B0 1B1 1B2 1B3",
        "2F0 2F1 2F2 5F0 2F3 5F1 5F2 5F3 5B0 5B1 2B0 5B2 2B1 5B3 2B2 2B3",
        "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4B0 3B0 4B1 3B1 4B2 3B2 4B3 3B3"}},
      {"gems 4 4",
       costs_of(1, 1, 1, 0),
       39,
       36,
       {0, 1, 2, 3},
       {33, 35, 37, 39},
       {1, 1, 1, 1},
       {{0, 1, 2, 3}, {3, 2, 1, 0}},
       {"0F0 0B0 3F1 3B1 0F2 0B2 3F3 3B3", "1F0 1B0 2F1 2B1 1F2 1B2 2F3 2B3",
        "2F0 2B0 1F1 1B1 2F2 2B2 1F3 1B3", "3F0 3B0 0F1 0B1 3F2 3B2 0F3 0B3"}},
      {"varuna 4 8",
       costs_of(1, 1, 1, 0),
       39,
       39,
       {0, 1, 2, 3},
       {39, 37, 35, 33},
       {8, 6, 3, 1},
       {{0, 1, 2, 3}},
       {"0F0 0F1 0F2 0F3 0F4 0F5 0F6 0F7 0RECOMPUTE0 0B0 0RECOMPUTE1 0B1 0RECOMPUTE2 0B2 0RECOMPUTE3 0B3 "
        "0RECOMPUTE4 0B4 0RECOMPUTE5 0B5 0RECOMPUTE6 0B6 0RECOMPUTE7 0B7",
        "1F0 1F1 1F2 1F3 1F4 1F5 1RECOMPUTE0 1B0 1RECOMPUTE1 1B1 1RECOMPUTE2 1B2 1F6 1F7 1RECOMPUTE3 1B3 "
        "1RECOMPUTE4 1B4 1RECOMPUTE5 1B5 1RECOMPUTE6 1B6 1RECOMPUTE7 1B7",
        "2F0 2F1 2F2 2RECOMPUTE0 2B0 2RECOMPUTE1 2B1 2RECOMPUTE2 2B2 2F3 2F4 2F5 2RECOMPUTE3 2B3 2RECOMPUTE4 "
        "2B4 2RECOMPUTE5 2B5 2F6 2F7 2RECOMPUTE6 2B6 2RECOMPUTE7 2B7",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7"}},
  };
  return plans;
}

}  // namespace penstock::testing
