// The generated orders against published plans, and their times and memory against the closed forms.
#include "parallel/pipeline/schedule/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "parallel/pipeline/schedule/verify.h"

namespace penstock {
namespace {

GenerateOptions options_of(Index pp, Index micro_batches) {
  GenerateOptions options;
  options.pp = pp;
  options.micro_batches = micro_batches;
  return options;
}

struct Published {
  const char* schedule;
  Index pp, micro_batches;
  std::vector<std::string> rows;
  double makespan;
  std::vector<double> first_start, last_end;
  std::vector<Index> peak_in_flight;
};

TEST(Generate, PublishedOrdersAndTimes) {
  const std::vector<Published> published = {
      {"gpipe", 2, 2, {"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"}, 9, {0, 1}, {9, 7}, {2, 2}},
      {"gpipe",
       4,
       2,
       {"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1", "3F0 3F1 3B0 3B1"},
       15,
       {0, 1, 2, 3},
       {15, 13, 11, 9},
       {2, 2, 2, 2}},
      {"gpipe",
       4,
       4,
       {"0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3",
        "2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3", "3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3"},
       21,
       {0, 1, 2, 3},
       {21, 19, 17, 15},
       {4, 4, 4, 4}},
      {"1f1b", 2, 2, {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}, 9, {0, 1}, {9, 7}, {2, 1}},
      {"1f1b",
       4,
       2,
       {"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1", "3F0 3B0 3F1 3B1"},
       15,
       {0, 1, 2, 3},
       {15, 13, 11, 9},
       {2, 2, 2, 1}},
      {"1f1b",
       4,
       8,
       {"0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
        "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
        "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7"},
       33,
       {0, 1, 2, 3},
       {33, 31, 29, 27},
       {4, 3, 2, 1}},
  };
  for (const Published& expected : published) {
    SCOPED_TRACE(fmt::format("{} {} {}", expected.schedule, expected.pp, expected.micro_batches));
    const Plan plan = generate(expected.schedule, options_of(expected.pp, expected.micro_batches));
    ASSERT_EQ(std::ssize(plan.rows), expected.pp);
    for (Index rank = 0; rank < plan.pp; ++rank)
      EXPECT_EQ(row_text(plan, rank), expected.rows[static_cast<std::size_t>(rank)]);
    const Simulation simulation = simulate(plan, {});
    EXPECT_EQ(simulation.makespan, expected.makespan);
    EXPECT_EQ(simulation.cost, expected.makespan);
    EXPECT_EQ(simulation.peak_in_flight, expected.peak_in_flight);
    for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
      EXPECT_EQ(simulation.ranks[rank].first_start, expected.first_start[rank]);
      EXPECT_EQ(simulation.ranks[rank].last_end, expected.last_end[rank]);
    }
  }
}

// Makespan (m + p - 1)(F + B), bubble_total (p - 1)/(m + p - 1), bubble_ideal (p - 1)/m; peak m on every rank
// for GPipe, min(p - r, m) for 1F1B. The costs are chosen so that sums are exact.
TEST(Generate, ClosedFormsForEverySmallShape) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (Index p = 1; p <= 7; ++p) {
      for (Index m = 1; m <= 16; ++m) {
        for (const auto& [f, i, w] : {std::tuple{1.0, 1.0, 1.0}, {4.0, 2.0, 0.5}, {1.0, 8.0, 2.0}}) {
          SCOPED_TRACE(fmt::format("{} p {} m {} F {} I {} W {}", name, p, m, f, i, w));
          const Plan plan = generate(name, options_of(p, m));
          ASSERT_FALSE(verify(plan).has_value()) << verify(plan)->message();
          CostModel costs;
          costs.f = {f};
          costs.i = {i};
          costs.w = {w};
          costs.memory_f = {6};
          costs.memory_i = {4};
          costs.memory_w = {2};
          const Simulation simulation = simulate(plan, costs);
          const auto pd = static_cast<double>(p);
          const auto md = static_cast<double>(m);
          EXPECT_EQ(simulation.makespan, (md + pd - 1) * (f + i + w));
          EXPECT_EQ(simulation.cost, simulation.makespan);
          EXPECT_NEAR(simulation.bubble_total, (pd - 1) / (md + pd - 1), 1e-12);
          EXPECT_NEAR(simulation.bubble_cost, (pd - 1) / (md + pd - 1), 1e-12);
          EXPECT_NEAR(simulation.bubble_ideal, (pd - 1) / md, 1e-12);
          for (Index rank = 0; rank < p; ++rank) {
            const Index peak = name == std::string("gpipe") ? m : std::min(p - rank, m);
            EXPECT_EQ(simulation.peak_in_flight[static_cast<std::size_t>(rank)], peak);
            EXPECT_EQ(simulation.peak[static_cast<std::size_t>(rank)], 6 * static_cast<double>(peak));
            EXPECT_EQ(simulation.ranks[static_cast<std::size_t>(rank)].busy, md * (f + i + w));
          }
        }
      }
    }
  }
}

TEST(Generate, EveryNameOfTheContractIsListed) {
  const std::set<std::string_view> names = {"gpipe",
                                            "1f1b",
                                            "eager-1f1b",
                                            "interleaved-1f1b",
                                            "looped-bfs",
                                            "zb-h1",
                                            "zb-h2",
                                            "zb-1p",
                                            "zb-2p",
                                            "zb-v",
                                            "interleaved-zb",
                                            "v-half",
                                            "v-min",
                                            "dualpipe",
                                            "dualpipev",
                                            "chimera",
                                            "chimera-doubling",
                                            "chimera-halving",
                                            "hanayo",
                                            "gems",
                                            "varuna",
                                            "pipedream",
                                            "pipedream-2bw",
                                            "pipemare",
                                            "auto"};
  std::set<std::string_view> listed;
  for (const ScheduleInfo& info : schedules()) {
    EXPECT_TRUE(listed.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.summary.empty());
    if (info.generator == nullptr) {
      try {
        generate(info.name, options_of(4, 8));
        FAIL() << info.name;
      } catch (const ValueError& error) {
        EXPECT_NE(std::string(error.what()).find("not yet"), std::string::npos) << error.what();
      }
    } else {
      EXPECT_EQ(generate(info.name, options_of(4, 8)).schedule, info.name);
    }
  }
  EXPECT_EQ(listed, names);
}

std::string message_of(std::string_view name, const GenerateOptions& options) {
  try {
    generate(name, options);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

TEST(Generate, RefusalsNameFlagValueAndRule) {
  EXPECT_EQ(
      message_of("1f1", options_of(2, 2)),
      "--schedule 1f1: no such schedule; the nearest name is 1f1b (`penstock-schedule list` has them all)");
  EXPECT_NE(message_of("dualpip", options_of(2, 2)).find("nearest name is dualpipe "), std::string::npos);
  EXPECT_EQ(message_of("1f1b", options_of(0, 2)), "--pp 0: 1 or more is allowed");
  EXPECT_EQ(message_of("gpipe", options_of(2, -3)), "--micro-batches -3: 1 or more is allowed");
  GenerateOptions options = options_of(2, 2);
  options.virtual_stages = 2;
  EXPECT_EQ(message_of("1f1b", options),
            "--virtual-stages 2: 1f1b has one chunk a rank, so 1 alone is allowed");
  options.virtual_stages = 1;
  options.replicas = 3;
  EXPECT_NE(message_of("gpipe", options).find("--replicas 3"), std::string::npos);
  options.replicas = 1;
  options.steps = 4;
  EXPECT_NE(message_of("gpipe", options).find("--steps 4"), std::string::npos);
  options.steps = 1;
  EXPECT_EQ(message_of("gpipe", options), "");
  // A size whose plan no memory holds, and whose number of actions does not even fit into 64 bits.
  EXPECT_NE(message_of("1f1b", options_of(Index{1} << 40, Index{1} << 40)).find("at most"),
            std::string::npos);
}

TEST(Generate, ForwardPlansRunOnEveryPlacement) {
  const std::vector<Placement> placements = {linear_placement(1),        linear_placement(4),
                                             looped_placement(3, 2),     {{0, 1, 2, 2, 1, 0}},
                                             {{0, 1, 1, 0, 0, 1, 1, 0}}, {{0, 1, 2, 3}, {3, 2, 1, 0}}};
  for (const Placement& placement : placements) {
    for (const Index m : {1, 2, 3, 8}) {
      const Plan plan = forward_plan(placement, m);
      EXPECT_TRUE(plan.forward_only);
      const auto violation = verify(plan);
      EXPECT_FALSE(violation.has_value()) << violation->message();
      // Each stage takes the micro-batches of a replica in ascending order.
      for (Index rank = 0; rank < plan.pp; ++rank) {
        std::map<std::pair<Index, Index>, Index> last;
        for (const Action& action : plan.actions(rank)) {
          Index& before =
              last.try_emplace({action.stage, plan.replica[static_cast<std::size_t>(action.micro_batch)]}, -1)
                  .first->second;
          EXPECT_LT(before, action.micro_batch);
          before = action.micro_batch;
        }
      }
    }
  }
  // One p-th each of a linear pipeline: m + p - 1 slots.
  EXPECT_EQ(simulate(forward_plan(linear_placement(4), 8), {}).makespan, 11);
  EXPECT_EQ(simulate(forward_plan(linear_placement(4), 8), {}).peak, (std::vector<double>{1, 1, 1, 1}));
  EXPECT_THROW(forward_plan({}, 1), ValueError);
  EXPECT_THROW(forward_plan({{0, 1}, {0}}, 1), ValueError);
  EXPECT_THROW(forward_plan(linear_placement(2), 0), ValueError);
}

}  // namespace
}  // namespace penstock
