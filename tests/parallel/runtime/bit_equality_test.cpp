// The promise that the layout does not change the result: losses, norms, gradients, weights and moments of a
// small GPT-2, bit by bit against one rank, over ranks, schedules, micro-batches, dropout, tied weights,
// threads and partitions.
#include <tuple>

#include "parallel/runtime/support.h"

namespace penstock::testing {
namespace {

/// What one rank makes of the same split, computed once.
const Outcome& one_rank(float dropout, bool tied, Index micro_batches) {
  static std::map<std::tuple<float, bool, Index>, Outcome> known;
  const auto key = std::make_tuple(dropout, tied, micro_batches);
  if (!known.contains(key)) {
    const Model model = make_gpt2("small", small_gpt2(dropout, tied));
    known[key] = train(uneven_training(model, named_plan("gpipe", 1, micro_batches)));
  }
  return known[key];
}

class BitEquality : public ::testing::TestWithParam<std::tuple<Index, std::string>> {};

TEST_P(BitEquality, EverySplitGivesTheBitsOfOneRank) {
  const auto& [pp, schedule] = GetParam();
  for (const float dropout : {0.0f, 0.1f}) {
    for (const bool tied : {true, false}) {
      const Model model = make_gpt2("small", small_gpt2(dropout, tied));
      for (Index m = 1; m <= 3 * pp; ++m) {
        for (const int threads : {1, 2}) {
          // Two threads a rank on few cores are slow; some of the splits are enough for them.
          if (threads == 2 && (dropout == 0.0f || (m != 1 && m != pp + 1))) continue;
          Training t = uneven_training(model, named_plan(schedule, pp, m));
          t.threads = threads;
          EXPECT_TRUE(same_bits(one_rank(dropout, tied, m), train(t)))
              << "dropout " << dropout << ", tied " << tied << ", micro-batches " << m << ", threads "
              << threads;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, BitEquality,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values("gpipe", "1f1b")),
                         [](const auto& test) {
                           return fmt::format("pp{}_{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

TEST(BitEqualityPartitions, LayersMayLieAnywhere) {
  const Model model = make_gpt2("small", small_gpt2(0.1f, true));
  const std::vector<std::vector<Index>> partitions = {{4, 0},    {0, 4},       {1, 3},      {0, 4, 0},
                                                      {2, 0, 2}, {0, 0, 4, 0}, {1, 2, 1, 0}};
  for (const auto& layers : partitions) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
      const auto stages = static_cast<Index>(layers.size());
      Training t = uneven_training(model, named_plan(schedule, stages, 3));
      t.partition = partition_by_layers(model, layers, stages);
      EXPECT_TRUE(same_bits(one_rank(0.1f, true, 3), train(t)))
          << schedule << " " << fmt::format("{}", layers.size()) << ": " << layers[0];
    }
  }
}

TEST(BitEqualityPartitions, SizesWhereKernelsAreCutIntoSeveralTasks) {
  Gpt2Config config = small_gpt2(0.1f, true);
  config.layers = 2;
  config.hidden = 160;
  config.heads = 4;
  config.vocabulary = 300;
  config.positions = 40;
  const Model model = make_gpt2("wide", config);
  Training t;
  t.model = &model;
  t.micro_batch = 4;
  t.source = token_source(7, 37, 300, std::nullopt, 2000);
  t.plan = named_plan("gpipe", 1, 2);
  t.partition = even_partition(model, 1);
  const Outcome one = train(t);
  t.threads = 3;
  EXPECT_TRUE(same_bits(one, train(t))) << "threads";
  t.plan = named_plan("1f1b", 2, 2);
  t.partition = even_partition(model, 2);
  EXPECT_TRUE(same_bits(one, train(t))) << "threads and ranks";
}

TEST(BitEqualitySeeds, AnotherSeedIsAnotherRun) {
  // The comparison can fail: another seed, another dropout mask, another order of micro-batches change bits.
  const Model model = make_gpt2("small", small_gpt2(0.1f, true));
  Training t = uneven_training(model, named_plan("gpipe", 1, 3));
  t.seed = 8;
  EXPECT_FALSE(same_bits(one_rank(0.1f, true, 3), train(t)));
  EXPECT_FALSE(same_bits(one_rank(0.1f, true, 3), one_rank(0.0f, true, 3)));
  EXPECT_FALSE(same_bits(one_rank(0.1f, true, 3).first_gradients, one_rank(0.1f, true, 4).first_gradients,
                         "gradients"));
}

}  // namespace
}  // namespace penstock::testing
