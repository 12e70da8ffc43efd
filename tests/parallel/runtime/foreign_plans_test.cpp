// Plans that no generator of this library makes, through the same executor: split backwards, several chunks a
// rank, V placement, overlapped pairs. Each must give the bits of one rank.
#include "parallel/pipeline/schedule/lower.h"
#include "parallel/runtime/support.h"

namespace penstock::testing {
namespace {

struct Foreign {
  const char* name;
  std::vector<std::string> rows;
};

const std::vector<Foreign>& foreign_plans() {
  static const std::vector<Foreign> plans = {
      {"split on one rank", {"0F0 0I0 0F1 0I1 0W0 0F2 0I2 0W1 0W2"}},
      {"W delayed to the end",
       {"0F0 0F1 0F2 0I0 0I1 0I2 0W0 0W1 0W2", "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"}},
      {"zero-bubble rhythm", {"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W1 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"}},
      {"split at one stage alone", {"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"}},
      {"two stages on one rank", {"0F0 1F0 1B0 0B0 0F1 1F1 0F2 1F2 1B1 0B1 1B2 0B2"}},
      {"four stages on one rank, split",
       {"0F0 1F0 2F0 3F0 3I0 2I0 1I0 0I0 0F1 1F1 3W0 2W0 1W0 0W0 2F1 3F1 3B1 2B1 1B1 0B1 "
        "0F2 1F2 2F2 3F2 3I2 2B2 1I2 0B2 1W2 3W2"}},
      {"looped, two chunks a rank",
       {"0F0 0F1 2F0 2F1 0F2 2F2 2B0 2B1 0B0 2B2 0B1 0B2",
        "1F0 1F1 3F0 3B0 1F2 3F1 3B1 1B0 3F2 3B2 1B1 1B2"}},
      {"V: first and last stage share a rank",
       {"0F0 0F1 3F0 3B0 0F2 3F1 3B1 0B0 3F2 3B2 0B1 0B2",
        "1F0 2F0 1F1 2F1 2B0 1B0 1F2 2F2 2B1 1B1 2B2 1B2"}},
      {"V, split",
       {"0F0 0F1 3F0 3I0 0F2 3F1 3I1 3W0 0I0 3F2 3I2 0W0 0I1 3W1 0W1 0I2 3W2 0W2",
        "1F0 2F0 1F1 2F1 2I0 1I0 1F2 2F2 2I1 2W0 1I1 1W0 2I2 2W1 1W1 1I2 2W2 1W2"}},
      {"overlapped pairs", {"0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"}},
      {"V with overlapped pairs of two stages",
       {"0F0 0F1 3F0 (0F2;3B0)OVERLAP_F_B 3F1 3B1 0B0 3F2 3B2 0B1 0B2",
        "1F0 2F0 1F1 2F1 (1F2;2B0)OVERLAP_F_B 1B0 2F2 2B1 1B1 2B2 1B2"}},
      {"three ranks, the middle one first in the file",
       {"1F0 1F1 1F2 1B0 1B1 1B2", "0F0 0F1 0F2 0B0 0B1 0B2", "2F0 2B0 2F1 2B1 2F2 2B2"}},
  };
  return plans;
}

class ForeignPlans : public ::testing::TestWithParam<std::tuple<bool, float>> {};

TEST_P(ForeignPlans, GiveTheBitsOfOneRank) {
  const auto& [tied, dropout] = GetParam();
  const Model model = make_gpt2("small", small_gpt2(dropout, tied));
  Training t;
  t.model = &model;
  t.micro_batch = 2;
  t.source = token_source(5);
  t.plan = named_plan("gpipe", 1, 3);
  t.partition = even_partition(model, 1);
  const Outcome one = train(t);
  for (const Foreign& foreign : foreign_plans()) {
    t.plan = plan_of(foreign.rows);
    ASSERT_EQ(t.plan.micro_batches, 3) << foreign.name;
    t.partition = even_partition(model, t.plan.stages);
    EXPECT_TRUE(same_bits(one, train(t))) << foreign.name << ", tied " << tied << ", dropout " << dropout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ForeignPlans,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(0.0f, 0.1f)),
                         [](const auto& test) {
                           return fmt::format("{}_dropout{}", std::get<0>(test.param) ? "tied" : "untied",
                                              std::get<1>(test.param) > 0 ? 1 : 0);
                         });

TEST(ForeignPlanOrder, DescendingMicroBatchesStayWithinRounding) {
  // The canonical sum is ascending by micro-batch; another order of backwards is another rounding, and no
  // more.
  const Model model = make_gpt2("small", small_gpt2());
  Training t;
  t.model = &model;
  t.micro_batch = 2;
  t.steps = {1};
  t.source = token_source(5);
  t.partition = even_partition(model, 1);
  t.plan = plan_of({"0F0 0F1 0F2 0B0 0B1 0B2"});
  const Outcome ascending = train(t);
  t.plan = plan_of({"0F0 0F1 0F2 0B2 0B1 0B0"});
  const Outcome descending = train(t);
  EXPECT_LT(relative_difference(ascending.first_gradients, descending.first_gradients), 1e-5);
  EXPECT_FALSE(same_bits(ascending.first_gradients, descending.first_gradients, "gradients"));
}

TEST(ForeignPlanWaits, TorchsWaitsAndShardingMarksHaveNoEffect) {
  const Model model = make_gpt2("small", small_gpt2());
  Training t;
  t.model = &model;
  t.micro_batch = 2;
  t.source = token_source(3);
  t.plan = named_plan("gpipe", 1, 2);
  t.partition = even_partition(model, 1);
  const Outcome one = train(t);
  t.plan = plan_of({"0UNSHARD 0F0 0F1 0B0 0B1 0RESHARD", "1UNSHARD 1F0 1B0 1F1 1B1 1WAIT_SEND_B0 1RESHARD"});
  t.partition = even_partition(model, 2);
  EXPECT_TRUE(same_bits(one, train(t)));
}

TEST(ForeignPlanReplicas, TwoCopiesOfTheModelAreRefused) {
  // Both ranks hold both stages, each for one micro-batch: gradients would need a sum over the copies.
  const Model model = make_gpt2("small", small_gpt2());
  Training t;
  t.model = &model;
  t.source = token_source(2);
  t.partition = even_partition(model, 2);
  t.plan = plan_of({"0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"});
  EXPECT_THROW(train(t), ValueError);
}

}  // namespace
}  // namespace penstock::testing
