// Lowering against the two published examples (orders and lengths of their dry runs), on every transport, and
// the optimizer's actions.
#include "parallel/pipeline/schedule/lower.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "parallel/pipeline/schedule/generate.h"
#include "parallel/pipeline/schedule/verify.h"
#include "parallel/schedule/oracle.h"
#include "parallel/schedule/reference_plans.h"

namespace penstock {
namespace {

/// Steps of a unit-time dry run: all ranks in lock-step, every action takes one step, and starts at the
/// earliest in the step in which the SEND that a RECV takes has run, or after the actions that a compute
/// action needs.
int dry_run_steps(const Plan& plan) {
  std::set<std::string> done;
  const auto ready = [&](const Action& action) {
    const auto has = [&](Index stage, const char* kind) {
      return done.contains(fmt::format("{}{}{}", stage, kind, action.micro_batch));
    };
    switch (action.kind) {
      case ActionKind::F:
        return action.stage == 0 || has(action.stage, "RECV_F") || has(action.stage - 1, "F");
      case ActionKind::I:
      case ActionKind::B:
        return action.stage + 1 == plan.stages || has(action.stage, "RECV_B") || has(action.stage + 1, "I") ||
               has(action.stage + 1, "B");
      case ActionKind::RECV_F:
      case ActionKind::RECV_B:
        return done.contains(to_text(peer(action)));
      default:
        return true;
    }
  };
  std::vector<std::size_t> position(plan.rows.size(), 0);
  for (int steps = 0;; ++steps) {
    bool left = false;
    std::vector<bool> moved(plan.rows.size(), false);
    // Two passes: a RECV goes in the step of its SEND, wherever that rank stands in the order of ranks.
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t rank = 0; rank < plan.rows.size(); ++rank) {
        if (moved[rank] || position[rank] == plan.rows[rank].size()) continue;
        left = true;
        const Action& action = *plan.rows[rank][position[rank]];
        if (!ready(action)) continue;
        done.insert(to_text(action));
        ++position[rank];
        moved[rank] = true;
      }
    }
    if (!left) return steps;
    EXPECT_NE(std::count(moved.begin(), moved.end(), true), 0) << "the dry run is stuck";
    if (std::count(moved.begin(), moved.end(), true) == 0) return -1;
  }
}

TEST(Lower, PublishedExampleOnTwoStages) {
  const Plan plan = lower(plan_from_rows("x", rows_from_text({"0F0 0F1 0B0 0B1", "- 1F0 1B0 1F1 1B1"})));
  EXPECT_EQ(row_text(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(row_text(plan, 1), "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1");
  EXPECT_EQ(dry_run_steps(plan), 11);
}

TEST(Lower, PublishedExampleOnTheVMap) {
  const Plan plan =
      lower(plan_from_rows("x", rows_from_text({"0F0 0F1 3F0 3I0 3F1 3I1 0I0 3W0 0I1 3W1 0W0 0W1",
                                                "- 1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 2W1 1W0 1W1"})));
  EXPECT_EQ(row_text(plan, 0),
            "0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3I0 3SEND_B0 3RECV_F1 3F1 3I1 3SEND_B1 0RECV_B0 0I0 3W0 "
            "0RECV_B1 "
            "0I1 3W1 0W0 0W1");
  EXPECT_EQ(row_text(plan, 1),
            "1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1 2I0 2RECV_B1 1I0 1SEND_B0 2I1 1I1 "
            "1SEND_B1 "
            "2W0 2W1 1W0 1W1");
  EXPECT_EQ(dry_run_steps(plan), 24);
}

TEST(Lower, EveryPublishedPlanPassesEveryTransport) {
  for (const auto& reference : testing::reference_plans()) {
    const Plan plan = lower(plan_from_rows(reference.name, rows_from_text(reference.rows)));
    EXPECT_TRUE(plan.lowered);
    EXPECT_FALSE(verify(plan).has_value()) << reference.name << ": " << verify(plan)->message();
    for (const Transport transport : {Transport::buffered, Transport::fifo, Transport::rendezvous})
      EXPECT_TRUE(testing::transport_is_sound(plan.rows, transport)) << reference.name << name(transport);
  }
}

TEST(Lower, MessagesAreThoseThatCrossRanks) {
  for (Index p = 1; p <= 5; ++p) {
    for (const Index m : {1, 3, 8}) {
      GenerateOptions options;
      options.pp = p;
      options.micro_batches = m;
      for (const char* name : {"gpipe", "1f1b"}) {
        const Plan plan = lower(generate(name, options));
        EXPECT_TRUE(testing::messages_are_sound(plan.rows, plan.placement[0], m)) << name << p << m;
        Index messages = 0;
        for (Index rank = 0; rank < p; ++rank)
          for (const Action& action : plan.actions(rank)) messages += is_communication(action.kind) ? 1 : 0;
        EXPECT_EQ(messages, 2 * 2 * (p - 1) * m);
      }
    }
  }
}

TEST(Lower, ValuesThatStayAddNothing) {
  const Plan plan = lower(plan_from_rows("x", rows_from_text({"0F0 1F0 1B0 0B0"})));
  EXPECT_EQ(row_text(plan, 0), "0F0 1F0 1B0 0B0");
}

TEST(Lower, AnOverlappedPairSendsBoth) {
  Plan plan = plan_from_rows("x", rows_from_text({"0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"}));
  plan = lower(plan);
  EXPECT_EQ(row_text(plan, 1), "1RECV_F0 1F0 1RECV_F1 (1F1;1B0)OVERLAP_F_B 1SEND_B0 1B1 1SEND_B1");
  EXPECT_FALSE(verify(plan).has_value()) << verify(plan)->message();
}

TEST(Lower, OtherKindsStayWhereTheyAre) {
  const Plan plan = lower(
      plan_from_rows("x", rows_from_text({"0UNSHARD 0F0 0RECOMPUTE0 0B0 0RESHARD 0REDUCE_GRAD", "1F0 1B0"})));
  EXPECT_EQ(row_text(plan, 0), "0UNSHARD 0F0 0SEND_F0 0RECOMPUTE0 0RECV_B0 0B0 0RESHARD 0REDUCE_GRAD");
}

TEST(Lower, ForwardOnlyPlansLowerToo) {
  const Plan plan = lower(forward_plan(linear_placement(2), 2));
  EXPECT_EQ(row_text(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1");
  EXPECT_EQ(row_text(plan, 1), "1RECV_F0 1F0 1RECV_F1 1F1");
  EXPECT_FALSE(verify(plan).has_value());
}

TEST(Lower, RefusesWhatIsLoweredOrStuck) {
  const Plan plan = lower(forward_plan(linear_placement(2), 2));
  EXPECT_THROW(lower(plan), ValueError);
  EXPECT_THROW(lower(plan_from_rows("x", rows_from_text({"0B0 0F0"}))), ValueError);
}

TEST(Optimizer, ComesLastOncePerStage) {
  GenerateOptions options;
  options.pp = 2;
  options.micro_batches = 2;
  const Plan plan = add_optimizer(lower(generate("1f1b", options)));
  EXPECT_EQ(row_text(plan, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0STEP");
  VerifyOptions optimizer;
  optimizer.optimizer = true;
  EXPECT_FALSE(verify(plan, optimizer).has_value());
  EXPECT_THROW(add_optimizer(plan), ValueError);
  EXPECT_THROW(add_optimizer(forward_plan(linear_placement(2), 2)), ValueError);

  // What a foreign file says of reductions gives way.
  const Plan foreign = plan_from_rows("torch", rows_from_text({"0F0 0B0 0REDUCE_GRAD 0WAIT_REDUCE_GRAD",
                                                               "1F0 1B0 1REDUCE_GRAD 1WAIT_REDUCE_GRAD"})),
             plain = plan_from_rows("plain", rows_from_text({"0F0 0B0", "1F0 1B0"}));
  EXPECT_EQ(add_optimizer(lower(foreign)).rows, add_optimizer(lower(plain)).rows);

  // Several stages a rank, several replicas.
  for (const auto& reference : testing::reference_plans()) {
    const Plan each = add_optimizer(lower(plan_from_rows(reference.name, rows_from_text(reference.rows))));
    EXPECT_FALSE(verify(each, optimizer).has_value()) << reference.name << verify(each, optimizer)->message();
    for (Index rank = 0; rank < each.pp; ++rank) {
      const auto stages = each.stages_of(rank);
      std::string tail;
      for (const Index stage : stages) tail += fmt::format(" {}REDUCE_GRAD", stage);
      for (const Index stage : stages) tail += fmt::format(" {}STEP", stage);
      EXPECT_TRUE(row_text(each, rank).ends_with(tail)) << reference.name;
    }
  }
}

TEST(Optimizer, UpdatesWithinThePlan) {
  // PipeDream's order on two ranks: every backward is followed by an update of its stage, after its gradient
  // has left.
  GenerateOptions options;
  options.pp = 2;
  options.micro_batches = 4;
  Plan plan = generate("1f1b", options);
  plan.micro_batches_per_update = 2;
  plan = add_optimizer(lower(plan));
  EXPECT_EQ(row_text(plan, 1),
            "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1RECV_F2 1B1 1SEND_B1 1REDUCE_GRAD 1STEP 1F2 1RECV_F3 "
            "1B2 1SEND_B2 "
            "1F3 1B3 1SEND_B3 1REDUCE_GRAD 1STEP");
  VerifyOptions optimizer;
  optimizer.optimizer = true;
  EXPECT_FALSE(verify(plan, optimizer).has_value()) << verify(plan, optimizer)->message();
  plan.micro_batches_per_update = 4;
  EXPECT_TRUE(verify(plan, optimizer).has_value());
}

}  // namespace
}  // namespace penstock
