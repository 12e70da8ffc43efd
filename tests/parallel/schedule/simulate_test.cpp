// The simulator against published times of schemes of every kind, and cases small enough to do by hand.
#include "parallel/pipeline/schedule/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/schedule/reference_plans.h"

namespace penstock {
namespace {

Plan plan_of(const std::vector<std::string>& rows) { return plan_from_rows("x", rows_from_text(rows)); }

Plan one_f_one_b(Index pp, Index micro_batches) {
  GenerateOptions options;
  options.pp = pp;
  options.micro_batches = micro_batches;
  return generate("1f1b", options);
}

TEST(Simulate, PublishedTimesAndPeaks) {
  for (const auto& reference : testing::reference_plans()) {
    SCOPED_TRACE(reference.name);
    const Simulation simulation = simulate(plan_of(reference.rows), reference.costs);
    EXPECT_NEAR(simulation.makespan, reference.makespan, 1e-9);
    EXPECT_NEAR(simulation.cost, reference.cost, 1e-9);
    EXPECT_EQ(simulation.peak_in_flight, reference.peak_in_flight);
    for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
      EXPECT_NEAR(simulation.ranks[rank].first_start, reference.first_start[rank], 1e-9);
      EXPECT_NEAR(simulation.ranks[rank].last_end, reference.last_end[rank], 1e-9);
    }
  }
}

// With a hop 1F1B has no closed form; on two ranks and two micro-batches it is done by hand:
// rank 0: F0 0-1, F1 1-2; rank 1: F0 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5, B1 5.5-7.5; rank 0: B0 5-7, B1 8-10.
TEST(Simulate, HopByHand) {
  CostModel costs;
  costs.hop = 0.5;
  const Simulation simulation = simulate(one_f_one_b(2, 2), costs);
  EXPECT_EQ(simulation.makespan, 10);
  EXPECT_EQ(simulation.timeline.ranks[0][2].start, 5);
  EXPECT_EQ(simulation.timeline.ranks[1][0].start, 1.5);
  EXPECT_EQ(simulation.timeline.ranks[1][3].end, 7.5);
  EXPECT_EQ(simulation.ranks[1].first_start, 1.5);
}

TEST(Simulate, NoHopWithinARank) {
  CostModel costs;
  costs.hop = 100;
  EXPECT_EQ(simulate(plan_of({"0F0 1F0 1B0 0B0"}), costs).makespan, 3);  // each stage costs half of a rank's
}

TEST(Simulate, ListsAreTakenAsTheyAreAndNumbersAreScaled) {
  const Plan plan = plan_of({"0F0 1F0 1I0 1W0 0B0"});  // pp 1, 2 stages
  CostModel costs;
  costs.f = {3, 5};
  costs.i = {8};
  costs.w = {2, 4};
  // 3 + 5 + 8/2 + 4 + (8/2 + 2)
  EXPECT_EQ(simulate(plan, costs).makespan, 22);
  costs.memory_f = {10, 20};
  costs.memory_i = {4, 6};
  costs.memory_w = {6, 14};
  EXPECT_EQ(simulate(plan, costs).peak[0], 30);
}

// F0 F1 I0 F2: 2, 4, 4 - 1 = 3, 5 held; W frees the other half.
TEST(Simulate, MemoryFollowsTheList) {
  CostModel costs;
  costs.memory_f = {2};
  costs.memory_i = {1};
  costs.memory_w = {1};
  const Simulation simulation = simulate(plan_of({"0F0 0F1 0I0 0F2 0W0 0I1 0W1 0B2"}), costs);
  EXPECT_EQ(simulation.peak[0], 5);
  EXPECT_EQ(simulation.peak_in_flight[0], 3);
}

TEST(Simulate, AnOverlappedPairStartsWhenBothCanAndEndsAtOnce) {
  const Plan plan = plan_of({"0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"});
  CostModel costs;
  costs.f = {1, 1};
  // Rank 1: F0 1-2, pair 2-5, so 0B0 5-7; B1 5-7, 0B1 7-9.
  Simulation simulation = simulate(plan, costs);
  EXPECT_EQ(simulation.timeline.ranks[1][1].start, 2);
  EXPECT_EQ(simulation.timeline.ranks[1][1].end, 5);
  EXPECT_EQ(simulation.makespan, 9);
  EXPECT_EQ(simulation.peak_in_flight[1], 2);  // the pair's F counts before its B
  costs.overlap = 2.5;
  simulation = simulate(plan, costs);
  EXPECT_EQ(simulation.timeline.ranks[1][1].end, 4.5);
  EXPECT_EQ(simulation.ranks[1].busy, 1 + 2.5 + 2);
}

TEST(Simulate, RecomputeCostsAForwardAndMayStartEarly) {
  CostModel costs;
  costs.f = {3, 3};
  // Rank 0: F0 0-3, R0 3-6; rank 1: F0 3-6, B0 6-8; rank 0: B0 8-10.
  const Simulation simulation = simulate(plan_of({"0F0 0RECOMPUTE0 0B0", "1F0 1B0"}), costs);
  EXPECT_EQ(simulation.timeline.ranks[0][1].start, 3);
  EXPECT_EQ(simulation.makespan, 10);
  EXPECT_EQ(simulation.ranks[0].busy, 8);
  EXPECT_EQ(simulation.peak_in_flight[0], 1);
}

TEST(Simulate, CostIsTheLargestOwnSpanAndIdealTheBusiestRank) {
  CostModel costs;
  costs.f = {1, 4};
  costs.i = {1, 4};
  costs.w = {1, 2};
  // Rank 0: F 0-1, B 11-13; rank 1: F 1-5, B 5-11: busy 10, span 10. Rank 0's span is 13.
  const Simulation simulation = simulate(one_f_one_b(2, 1), costs);
  EXPECT_EQ(simulation.makespan, 13);
  EXPECT_EQ(simulation.cost, 13);
  EXPECT_EQ(simulation.bubble_total, 1 - 13.0 / 26);
  EXPECT_EQ(simulation.bubble_cost, 1 - 10.0 / 13);
  EXPECT_EQ(simulation.bubble_ideal, 3.0 / 10);
}

TEST(Simulate, SendsAndOtherKindsTakeNoTime) {
  const Plan plan = plan_of({"0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD", "1RECV_F0 1F0 1B0 1SEND_B0"});
  const Simulation simulation = simulate(plan, {});
  EXPECT_EQ(simulation.makespan, 6);
  EXPECT_EQ(simulation.timeline.ranks[0].size(), 2u);
}

TEST(Simulate, NothingToShareIsNoNumber) {
  CostModel costs;
  costs.f = costs.i = costs.w = {0};
  const Simulation simulation = simulate(one_f_one_b(2, 2), costs);
  EXPECT_EQ(simulation.makespan, 0);
  EXPECT_TRUE(std::isnan(simulation.bubble_total));
  EXPECT_TRUE(std::isnan(simulation.bubble_ideal));
}

TEST(Simulate, RefusesBadCostsAndStuckPlans) {
  const Plan plan = one_f_one_b(2, 2);
  const auto refused = [&](auto change) {
    CostModel costs;
    change(costs);
    EXPECT_THROW(simulate(plan, costs), ValueError);
  };
  refused([](CostModel& costs) { costs.f = {1, 2, 3}; });
  refused([](CostModel& costs) { costs.w = {}; });
  refused([](CostModel& costs) { costs.i = {-1}; });
  refused([](CostModel& costs) { costs.hop = -0.5; });
  refused([](CostModel& costs) { costs.f = {std::numeric_limits<double>::quiet_NaN()}; });
  refused([](CostModel& costs) { costs.memory_f = {std::numeric_limits<double>::infinity()}; });
  EXPECT_THROW(simulate(plan_of({"0B0 0F0"}), {}), ValueError);
  EXPECT_THROW(simulate(Plan(), {}), ValueError);
}

TEST(Timeline, BubbleCountsComputeAlone) {
  Timeline timeline;
  timeline.ranks.resize(2);
  timeline.ranks[0] = {
      {parse_action("0F0"), 10, 14}, {parse_action("0RECV_B0"), 14, 18}, {parse_action("0B0"), 18, 20}};
  timeline.ranks[1] = {
      {parse_action("1F0"), 14, 16}, {parse_action("1B0"), 16, 18}, {parse_action("1STEP"), 18, 40}};
  EXPECT_EQ(timeline.bubble(), 1 - 10.0 / 20);
  EXPECT_EQ(timeline.first_start(), 10);
  EXPECT_EQ(timeline.last_end(), 40);
  EXPECT_TRUE(std::isnan(Timeline().bubble()));
  const Simulation simulation = simulate(one_f_one_b(4, 8), {});
  EXPECT_NEAR(simulation.timeline.bubble(), simulation.bubble_total, 1e-12);
}

}  // namespace
}  // namespace penstock
