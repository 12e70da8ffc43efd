// Text generation: greedy ids against the logits themselves, every pipeline the same ids, and the
// distribution that is sampled.
#include "parallel/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "parallel/runtime/support.h"

namespace penstock::testing {
namespace {

/// Ids that every rank of a pipeline of `pp` gives; the logits of the last rank.
Generation generate_on(const Model& model, Index pp, const std::vector<std::int32_t>& prompt, Index count,
                       const SamplingOptions& options) {
  Generation result;
  std::mutex mutex;
  const Partition partition = even_partition(model, pp);
  const Placement placement = linear_placement(pp);
  run_ranks(
      narrow<int>(pp),
      [&](Communicator& pipeline) {
        RankContext context;
        std::vector<int> blocks;
        const BlockRange mine = partition[static_cast<std::size_t>(pipeline.rank())];
        for (int b = mine.begin; b < mine.end; ++b) blocks.push_back(b);
        WeightStore weights(context, model, blocks, {});
        weights.initialize(5);
        Executor executor({&context, &pipeline, &model, partition, &weights, 0});
        std::vector<std::int32_t> seen;
        Generation mine_made = generate_tokens(executor, pipeline, placement, prompt, count, 8, 13, options,
                                               true, [&](std::int32_t id) { seen.push_back(id); });
        EXPECT_EQ(seen, mine_made.ids);
        const std::lock_guard lock(mutex);
        if (!result.ids.empty()) {
          EXPECT_EQ(result.ids, mine_made.ids);
        }
        result.ids = mine_made.ids;
        if (!mine_made.logits.empty()) result.logits = std::move(mine_made.logits);
      },
      60);
  return result;
}

TEST(Generate, GreedyIdsAreTheLargestLogits) {
  const Model model = make_gpt2("small", small_gpt2(0.5f));  // dropout has no effect here
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const Generation one = generate_on(model, 1, prompt, 4, {.temperature = 0, .seed = 1});
  ASSERT_EQ(one.ids.size(), 4u);
  // Row t of the last pass has the logits after ids 0..t: the id that stands at t + 1 is the row's argmax.
  ASSERT_EQ(one.logits.size(), 6u * 13u);
  std::vector<std::int32_t> all = prompt;
  all.insert(all.end(), one.ids.begin(), one.ids.end());
  for (std::size_t t = 2; t < 6; ++t) {
    const auto row = one.logits.begin() + static_cast<std::ptrdiff_t>(t * 13);
    EXPECT_EQ(all[t + 1], std::max_element(row, row + 13) - row) << "position " << t;
  }
}

TEST(Generate, EveryPipelineGivesTheSameIdsAndLogits) {
  for (const bool tied : {true, false}) {
    const Model model = make_gpt2("small", small_gpt2(0.1f, tied));
    for (const double temperature : {0.0, 1.5}) {
      const SamplingOptions options{.temperature = temperature, .top_k = 0, .top_p = 1, .seed = 9};
      const Generation one = generate_on(model, 1, {5, 0}, 6, options);
      for (Index pp = 2; pp <= 4; ++pp) {
        const Generation many = generate_on(model, pp, {5, 0}, 6, options);
        EXPECT_EQ(one.ids, many.ids) << pp;
        EXPECT_EQ(one.logits, many.logits) << pp;
      }
    }
  }
}

TEST(Generate, EndsWhenPositionsAreUsedUp) {
  const Model model = make_gpt2("small", small_gpt2());
  // 8 positions: inputs of up to 8 ids, so 6 more after a prompt of 3.
  EXPECT_EQ(generate_on(model, 2, {1, 2, 3}, 100, {.temperature = 0}).ids.size(), 6u);
  EXPECT_EQ(generate_on(model, 1, {1, 2, 3, 4, 5, 6, 7, 8}, 100, {.temperature = 0}).ids.size(), 1u);
  EXPECT_TRUE(generate_on(model, 1, {1}, 0, {}).ids.empty());
}

TEST(Generate, RefusesPromptsThatDoNotFit) {
  const Model model = make_gpt2("small", small_gpt2());
  EXPECT_THROW(generate_on(model, 1, {}, 1, {}), ValueError);
  EXPECT_THROW(generate_on(model, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 1, {}), ValueError);
  EXPECT_THROW(generate_on(model, 1, {13}, 1, {}), ValueError);
  EXPECT_THROW(generate_on(model, 1, {-1}, 1, {}), ValueError);
}

TEST(Generate, ASeedIsRepeatedAndAnotherOneDiffers) {
  const Model model = make_gpt2("small", small_gpt2());
  const auto ids = [&](std::uint64_t seed) {
    return generate_on(model, 1, {2}, 8, {.temperature = 2, .seed = seed}).ids;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
}

/// Share of each id among draws at many positions and seeds.
std::vector<double> shares(const std::vector<float>& logits, SamplingOptions options, int draws = 40000) {
  std::vector<double> share(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i) {
    options.seed = static_cast<std::uint64_t>(i / 200);
    share[static_cast<std::size_t>(sample(logits, options, i % 200))] += 1.0 / draws;
  }
  return share;
}

void expect_shares(const std::vector<double>& got, const std::vector<double>& weights) {
  double total = 0;
  for (const double w : weights) total += w;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double p = weights[i] / total;
    // 40,000 draws: five standard deviations; an id that is cut off never comes.
    EXPECT_LE(std::abs(got[i] - p), 5 * std::sqrt(p * (1 - p) / 40000) + 1e-9) << "id " << i;
  }
}

// Probabilities 0.4 0.3 0.2 0.1, in another order of ids.
const std::vector<float> four = {std::log(0.2f), std::log(0.4f), std::log(0.1f), std::log(0.3f)};

TEST(Sample, FollowsSoftmax) { expect_shares(shares(four, {}), {0.2, 0.4, 0.1, 0.3}); }
TEST(Sample, TemperatureIsAPower) {
  expect_shares(shares(four, {.temperature = 0.5}), {0.04, 0.16, 0.01, 0.09});
}
TEST(Sample, TopKKeepsTheMostLikely) { expect_shares(shares(four, {.top_k = 2}), {0, 0.4, 0, 0.3}); }
TEST(Sample, TopPKeepsTheFewestThatHoldIt) {
  expect_shares(shares(four, {.top_p = 0.65}), {0, 0.4, 0, 0.3});  // 0.4 < 0.65 <= 0.7
  expect_shares(shares(four, {.top_p = 0.75}), {0.2, 0.4, 0, 0.3});
  expect_shares(shares(four, {.top_p = 0.0001}), {0, 1, 0, 0});  // at least one stays
}
TEST(Sample, TopPActsOnWhatTopKLeft) {
  // Of 0.4, 0.3, 0.2 the first two hold 0.777 of 0.9.
  expect_shares(shares(four, {.top_k = 3, .top_p = 0.75}), {0, 0.4, 0, 0.3});
}
TEST(Sample, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 2, 3}, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-5}, {}, 3), 0);
  EXPECT_THROW(sample({}, {}, 0), ValueError);
}
TEST(Sample, LargeLogitsDoNotOverflow) { expect_shares(shares({1e4f, 1e4f, -1e4f}, {}), {0.5, 0.5, 0}); }

}  // namespace
}  // namespace penstock::testing
