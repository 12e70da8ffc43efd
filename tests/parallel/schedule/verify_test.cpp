// The verifier: what is sound passes, every rule is broken once, and thousands of random edits are judged as
// by oracles that work another way.
#include "parallel/pipeline/schedule/verify.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/schedule/oracle.h"
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

struct Fault {
  Index rank, position;
  std::string action, rule;
};

void expect_fault(const Plan& plan, const Fault& fault, const VerifyOptions& options = {}) {
  const auto violation = verify(plan, options);
  ASSERT_TRUE(violation.has_value()) << "accepted; expected: " << fault.rule;
  EXPECT_EQ(violation->rank, fault.rank) << violation->message();
  EXPECT_EQ(violation->position, fault.position) << violation->message();
  EXPECT_EQ(violation->action, fault.action) << violation->message();
  EXPECT_EQ(violation->rule, fault.rule) << violation->message();
}

constexpr const char* kOnce = "each action exactly once";
constexpr const char* kPairs = "SEND and RECV pair up";
constexpr const char* kAdjacent = "SEND after its producer, RECV before its consumer";

TEST(Verify, PublishedPlansPass) {
  for (const auto& reference : testing::reference_plans()) {
    const Plan plan = plan_of(reference.rows);
    EXPECT_FALSE(verify(plan).has_value()) << reference.name << ": " << verify(plan)->message();
  }
}

// Known fault 42: sets of ids compared by size let both of these pass.
TEST(Verify, OneDoubledAndOneMissingDoNotCancel) {
  expect_fault(plan_of({"0F0 0F0 0B0 0B1", "1F0 1B0 1F1 1B1"}), {0, 1, "0F0", kOnce});
  expect_fault(plan_of({"0F0 0F5 0B0 0B5", "1F0 1B0 1F5 1B5"}), {0, -1, "0F1", kOnce});
}

TEST(Verify, MissingActionsAreNamedWithTheirRank) {
  expect_fault(plan_of({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1"}), {1, -1, "1B1", kOnce});
  expect_fault(plan_of({"0F0 0F1 0B0 0B1", "1F0 1B0 1B1"}), {1, -1, "1F1", kOnce});
  expect_fault(plan_of({"0F0 0F1 0B0 0B1", "1F0 1B0"}), {1, -1, "1F1", kOnce});
  expect_fault(plan_of({"0F0 0F1 0B0 0B1", "1F0 1I0 1F1 1I1 1W1"}), {1, -1, "1W0", kOnce});
  expect_fault(plan_of({"0F0 0B0", "2F0 2B0"}), {-1, -1, "1F0", kOnce});
  // Two directions: the missing one belongs where its own micro-batch's path has the stage.
  expect_fault(plan_of({"0F0 1F1 1B1 0B0 0F2 1F3 1B3 0B2", "0F1 1F0 1B0 0B1 1F2 1B2"}),
               {1, -1, "0F3", kOnce});
}

TEST(Verify, BothKindsOfBackwardAreTooMuch) {
  expect_fault(plan_of({"0F0 0B0 0I0 0W0"}), {0, 2, "0I0", kOnce});
  expect_fault(plan_of({"0F0 0B0 0W0"}), {0, 2, "0W0", kOnce});
  expect_fault(plan_of({"0F0 0W0"}), {0, -1, "0I0", kOnce});
  expect_fault(plan_of({"0F0 0RECOMPUTE0 0RECOMPUTE0 0B0"}), {0, 2, "0RECOMPUTE0", kOnce});
}

TEST(Verify, OrderWithinAStage) {
  constexpr const char* rule = "F, then B or I and W";
  expect_fault(plan_of({"0B0 0F0"}), {0, 0, "0B0", rule});
  expect_fault(plan_of({"0F0 0W0 0I0"}), {0, 1, "0W0", rule});
  expect_fault(plan_of({"0F0 0B0 0RECOMPUTE0"}), {0, 1, "0B0", rule});
  expect_fault(plan_of({"0RECOMPUTE0 0F0 0B0"}), {0, 0, "0RECOMPUTE0", rule});
  expect_fault(plan_of({"(0F0;0B0)OVERLAP_F_B"}), {0, 0, "0B0", rule});
  EXPECT_FALSE(verify(plan_of({"0F0 0RECOMPUTE0 0B0"})).has_value());
  EXPECT_FALSE(verify(plan_of({"0F0 0RECOMPUTE0 0I0 0W0"})).has_value());
}

TEST(Verify, OneOwner) {
  expect_fault(plan_of({"0F0 0F1 0B0 1B1 0B1", "1F0 1B0 1F1"}), {0, 3, "1B1", "one owner"});
  expect_fault(plan_of({"0F0 0I0 1W0 0W0", "1F0 1I0"}), {0, 2, "1W0", "one owner"});
}

TEST(Verify, PathsAndReplicas) {
  // Micro-batch 1 runs both stages on rank 0: stage 1 lives on two ranks, stage 0 on one.
  expect_fault(plan_of({"0F0 0F1 1F1 1B1 0B1 0B0", "1F0 1B0"}), {0, 2, "1F1", "placement"});
  // Two replicas, three micro-batches against one.
  expect_fault(plan_of({"0F0 0F1 0F2 1F3 1B3 0B0 0B1 0B2", "1F0 1B0 1F1 1B1 0F3 1F2 1B2 0B3"}),
               {1, 4, "0F3", "placement"});
  // Two against one is as even as it gets.
  EXPECT_FALSE(verify(plan_of({"0F0 0F1 1F2 1B2 0B0 0B1", "1F0 1B0 0F2 1F1 1B1 0B2"})).has_value());
  // What the plan says of itself counts too.
  Plan plan = one_f_one_b(2, 2);
  std::swap(plan.placement[0][0], plan.placement[0][1]);
  expect_fault(plan, {0, 0, "0F0", "placement"});
  plan = one_f_one_b(2, 2);
  plan.placement.push_back({1, 0});  // a replica that no micro-batch takes
  expect_fault(plan, {-1, -1, "", "placement"});
}

TEST(Verify, EmptyRanks) {
  expect_fault(plan_of({"0F0 0B0", ""}), {1, -1, "", "no rank is empty"});
  expect_fault(plan_of({"0F0 0B0", "- -", "1F0 1B0"}), {1, -1, "", "no rank is empty"});
  expect_fault(plan_of({"0F0 0B0", "1UNSHARD", "1F0 1B0"}), {1, -1, "", "no rank is empty"});
  EXPECT_TRUE(verify(Plan()).has_value());
}

TEST(Verify, RangesOfAGeneratedPlan) {
  Plan plan = one_f_one_b(2, 2);
  plan.rows[1].push_back(parse_action("2F0"));
  expect_fault(plan, {1, 4, "2F0", "numbers in range"});
  plan.rows[1].back() = parse_action("1F2");
  expect_fault(plan, {1, 4, "1F2", "numbers in range"});
}

TEST(Verify, CirclesOfDependencies) {
  const Plan plan = plan_of({"0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1"});
  expect_fault(plan, {0, 1, "0B0", "order of dependencies"});
  const std::string message = verify(plan)->message();
  EXPECT_NE(message.find("rank 0 at position 1 (0B0) waits for 1B0 on rank 1"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 1 at position 0 (1F1) waits for 0F1 on rank 0"), std::string::npos) << message;
  // One rank waits for itself; positions count bubbles.
  expect_fault(plan_of({"- 1F0 0F0 1B0 0B0"}), {0, 1, "1F0", "order of dependencies"});
}

TEST(Verify, MessagesPairUp) {
  const std::vector<std::string> good = {"0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"};
  EXPECT_FALSE(verify(plan_of(good)).has_value());
  expect_fault(plan_of({"0F0 0RECV_B0 0B0", good[1]}), {0, -1, "0SEND_F0", kPairs});
  expect_fault(plan_of({good[0], "1F0 1B0 1SEND_B0"}), {1, -1, "1RECV_F0", kPairs});
  expect_fault(plan_of({"0F0 0SEND_F0 0SEND_F0 0RECV_B0 0B0", good[1]}), {0, 2, "0SEND_F0", kPairs});
  expect_fault(plan_of({"0SEND_F0 0F0 0RECV_B0 0B0", good[1]}), {0, 0, "0SEND_F0", kAdjacent});
  expect_fault(plan_of({"0F0 0SEND_F0 0B0 0RECV_B0", good[1]}), {0, 3, "0RECV_B0", kAdjacent});
  expect_fault(plan_of({"0F0 0SEND_F0 0RECV_B0 0B0 1SEND_B0", "1RECV_F0 1F0 1B0"}),
               {0, 4, "1SEND_B0", kPairs});
  expect_fault(plan_of({good[0], good[1] + " 1SEND_F0"}), {1, 4, "1SEND_F0", kPairs});
  expect_fault(plan_of({good[0] + " 0SEND_B0", good[1]}), {0, 4, "0SEND_B0", kPairs});
  // A message between stages of one rank.
  expect_fault(plan_of({"0F0 0SEND_F0 1RECV_F0 1F0 1B0 0B0"}), {0, 1, "0SEND_F0", kPairs});
}

TEST(Verify, TorchsOtherKindsHaveNoSay) {
  EXPECT_FALSE(verify(plan_of({"9UNSHARD 0REDUCE_GRAD 0F0 0WAIT_SEND_F9 0RESHARD 0B0 0WAIT_REDUCE_GRAD"}))
                   .has_value());
}

// Known fault 32: both ranks send first; small messages hide it.
TEST(Transport, BothSendFirst) {
  const auto rows = rows_from_text({"2SEND_F1 0SEND_F2 2RECV_B0", "3RECV_F1 3SEND_B0 1RECV_F2"});
  EXPECT_FALSE(check_transport(rows, Transport::buffered).has_value());
  EXPECT_FALSE(check_transport(rows, Transport::fifo).has_value());
  const auto violation = check_transport(rows, Transport::rendezvous);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->rank, 0);
  EXPECT_EQ(violation->position, 1);
  EXPECT_EQ(violation->action, "0SEND_F2");
  EXPECT_NE(violation->text.find("rank 1 at position 1 (3SEND_B0) waits for 2RECV_B0 on rank 0"),
            std::string::npos)
      << violation->text;
  // The published fragment has one more SEND, whose RECV it does not show.
  EXPECT_TRUE(
      check_transport(rows_from_text({"2SEND_F1 0SEND_F2 2RECV_B0", "3RECV_F1 3SEND_B0 1RECV_F2 3SEND_B1"}),
                      Transport::rendezvous)
          .has_value());
}

TEST(Transport, AWholePlanThatLocksUnderRendezvousAlone) {
  const Plan plan = plan_of({"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                             "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"});
  VerifyOptions options;
  options.transports = {Transport::buffered, Transport::fifo};
  EXPECT_FALSE(verify(plan, options).has_value());
  options.transports = {Transport::rendezvous};
  expect_fault(plan, {0, 3, "0SEND_F1", "no deadlock, rendezvous transport"}, options);
}

TEST(Transport, CrossedMessagesAreWrongUnderFifo) {
  const Plan plan = plan_of({"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0B1 0RECV_B0 0B0",
                             "1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F0 1F0 1B0 1SEND_B0"});
  VerifyOptions options;
  options.transports = {Transport::buffered};
  EXPECT_FALSE(verify(plan, options).has_value());
  options.transports = {Transport::fifo};
  expect_fault(plan, {1, 0, "1RECV_F1", "no deadlock, fifo transport"}, options);
}

TEST(Verify, ForwardOnlyPlans) {
  Plan plan = forward_plan(linear_placement(3), 4);
  EXPECT_FALSE(verify(plan).has_value());
  plan.forward_only = false;
  expect_fault(plan, {0, -1, "0B0", kOnce});
  Plan trained = one_f_one_b(2, 2);
  trained.forward_only = true;
  expect_fault(trained, {0, 2, "0B0", kOnce});
}

TEST(Verify, OptimizerPlacement) {
  VerifyOptions options;
  options.optimizer = true;
  constexpr const char* rule = "optimizer placement";
  expect_fault(plan_of({"0F0 0B0"}), {0, -1, "0REDUCE_GRAD", rule}, options);
  expect_fault(plan_of({"0F0 0B0 0REDUCE_GRAD"}), {0, -1, "0STEP", rule}, options);
  expect_fault(plan_of({"0F0 0B0 0STEP 0REDUCE_GRAD"}), {0, 2, "0STEP", rule}, options);
  expect_fault(plan_of({"0F0 0F1 0B0 0REDUCE_GRAD 0B1 0STEP"}), {0, 3, "0REDUCE_GRAD", rule}, options);
  expect_fault(plan_of({"0F0 0I0 0REDUCE_GRAD 0W0 0STEP"}), {0, 2, "0REDUCE_GRAD", rule}, options);
  expect_fault(plan_of({"0F0 0B0 0REDUCE_GRAD 0STEP 0STEP"}), {0, 4, "0STEP", rule}, options);
  expect_fault(plan_of({"0F0 0B0 1REDUCE_GRAD 0STEP", "1F0 1B0"}), {0, 2, "1REDUCE_GRAD", rule}, options);
  expect_fault(plan_of({"0F0 1F0 1B0 1REDUCE_GRAD 1STEP 0B0 0REDUCE_GRAD 0STEP"}), {0, 5, "0B0", rule},
               options);
  EXPECT_FALSE(
      verify(plan_of({"0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD 0STEP 1STEP"}), options).has_value());
  // Two replicas whose ranks reduce the stages that they share in different orders.
  expect_fault(plan_of({"0F0 1F1 1B1 0B0 0REDUCE_GRAD 1REDUCE_GRAD 0STEP 1STEP",
                        "0F1 1F0 1B0 0B1 1REDUCE_GRAD 0REDUCE_GRAD 0STEP 1STEP"}),
               {1, -1, "REDUCE_GRAD", "one order of collectives"}, options);
}

TEST(Verify, MessageNamesRankPositionActionAndRule) {
  const auto violation = verify(plan_of({"0F0 0F0 0B0 0B1", "1F0 1B0 1F1 1B1"}));
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->message(),
            "rank 0, position 1, 0F0: 0F0 is already at rank 0, position 0 (rule: each action exactly once)");
  EXPECT_THROW(require_verified(plan_of({"0F0"})), ValueError);
}

/// One random edit of a row: swap, move to another rank, drop, double, another number or kind.
void edit(std::vector<std::vector<Cell>>& rows, std::mt19937& random, const std::vector<ActionKind>& kinds) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  auto& row = rows[below(rows.size())];
  if (row.empty()) return;
  const std::size_t a = below(row.size());
  switch (below(6)) {
    case 0:
    case 1:
      std::swap(row[a], row[below(row.size())]);
      break;
    case 2: {
      const Cell cell = row[a];
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(a));
      auto& other = rows[below(rows.size())];
      other.insert(other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)), cell);
      break;
    }
    case 3:
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(a));
      break;
    case 4:
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(below(row.size() + 1)), row[a]);
      break;
    default:
      if (row[a]) {
        if (below(2) == 0)
          row[a]->micro_batch = static_cast<Index>(below(3));
        else
          row[a]->kind = kinds[below(kinds.size())];
      }
  }
}

/// 1F1B, its backwards split at random into I and W, on a linear, looped or V map of a few stages.
Plan random_plan(std::mt19937& random) {
  const std::vector<Plan> plans = {
      one_f_one_b(1, 2),
      one_f_one_b(2, 2),
      one_f_one_b(3, 3),
      one_f_one_b(2, 3),
      plan_of({"0F0 0F1 3F0 3I0 3F1 3I1 0I0 3W0 0I1 3W1 0W0 0W1",
               "1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 2W1 1W0 1W1"}),
      plan_of({"0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"})};
  Plan plan = plans[random() % plans.size()];
  for (auto& row : plan.rows) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (!row[k] || row[k]->kind != ActionKind::B || random() % 3 != 0) continue;
      Action weights = *row[k];
      weights.kind = ActionKind::W;
      row[k]->kind = ActionKind::I;
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(k + 1 + random() % (row.size() - k)), weights);
    }
  }
  return plan;
}

TEST(Verify, RandomEditsOfComputePlansAreJudgedAsByTheOracle) {
  std::mt19937 random(20240601);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 8000; ++round) {
    Plan plan = random_plan(random);
    for (auto edits = random() % 4; edits > 0; --edits)
      edit(plan.rows, random, {ActionKind::F, ActionKind::B, ActionKind::I, ActionKind::W});
    const bool sound = testing::compute_is_sound(plan.rows, plan.placement[0], plan.micro_batches);
    const auto violation = verify(plan);
    (sound ? accepted : refused) += 1;
    if (sound == violation.has_value()) {
      std::string rows;
      for (Index rank = 0; rank < plan.pp; ++rank) rows += row_text(plan, rank) + "\n";
      FAIL() << (sound ? "refused: " + violation->message() : "accepted") << "\n" << rows;
    }
    if (violation) {
      EXPECT_FALSE(violation->rule.empty() || violation->text.empty());
    }
  }
  EXPECT_GT(accepted, 800);
  EXPECT_GT(refused, 800);
}

TEST(Verify, RandomEditsOfLoweredPlansAreJudgedAsByTheOracles) {
  std::mt19937 random(7);
  int accepted = 0;
  std::map<std::string, int> refused;
  for (int round = 0; round < 8000; ++round) {
    Plan plan = lower(random_plan(random));
    for (auto edits = random() % 4; edits > 0; --edits)
      edit(plan.rows, random,
           {ActionKind::SEND_F, ActionKind::RECV_F, ActionKind::SEND_B, ActionKind::RECV_B});
    const Transport transport = static_cast<Transport>(random() % 3);
    const bool sound = testing::compute_is_sound(plan.rows, plan.placement[0], plan.micro_batches) &&
                       testing::messages_are_sound(plan.rows, plan.placement[0], plan.micro_batches) &&
                       testing::transport_is_sound(plan.rows, transport);
    VerifyOptions options;
    options.transports = {transport};
    const auto violation = verify(plan, options);
    if (sound == violation.has_value()) {
      std::string rows;
      for (Index rank = 0; rank < plan.pp; ++rank) rows += row_text(plan, rank) + "\n";
      FAIL() << name(transport) << (sound ? " refused: " + violation->message() : " accepted") << "\n"
             << rows;
    }
    if (violation)
      ++refused[violation->rule];
    else
      ++accepted;
  }
  EXPECT_GT(accepted, 800);
  // Every kind of fault has come up.
  for (const char* rule :
       {kPairs, kAdjacent, kOnce, "no deadlock, fifo transport", "no deadlock, rendezvous transport"})
    EXPECT_GT(refused[rule], 5) << rule;
}

TEST(Verify, LargePlansAreQuick) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(verify(one_f_one_b(32, 256)).has_value());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace penstock
